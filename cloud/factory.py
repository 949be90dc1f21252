"""Put the edge together from the settings and the environment."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial

from cloud import credential_providers, credentials
from cloud.caller import Calls
from cloud.client import Cloud
from cloud.credential_cache import Renewed
from cloud.credential_types import Source
from cloud.errors import NotConfigured
from cloud.rate_limiter import Limits
from cloud.transport import Transport
from settings import CloudSettings


def connect(
    settings: CloudSettings,
    *,
    may_write: Callable[[], object],
    environ: Mapping[str, str] = os.environ,
    sleep: Callable[[float], object] = time.sleep,
) -> Cloud:
    """One for the whole process, so that all its threads share the rates; nothing is called yet.

    *may_write* raises when nothing may be changed any more, *sleep* when waiting is to end: see `Calls`.
    NotConfigured without a region.
    """
    if not settings.region:
        raise NotConfigured(
            "NoRegion", "cloud.region is empty; write for example ap-singapore", action="connect"
        )
    source = _source(settings, environ)
    calls = Calls(
        Transport(settings, settings.region, source),
        Limits(settings.rate_share, sleep=sleep),
        timeout=settings.call_timeout,
        attempt_timeout=settings.attempt_timeout,
        may_write=may_write,
        keys=source,
        sleep=sleep,
    )
    return Cloud(calls)


def _source(settings: CloudSettings, environ: Mapping[str, str]) -> Source:
    return credentials.source(
        settings,
        environ,
        role=Renewed(partial(credential_providers.from_machine, settings.cvm_role)),
        oidc=Renewed(partial(credential_providers.from_pod_identity, settings, environ)),
    )
