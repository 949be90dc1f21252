"""Put the edge together from the settings and the environment."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial

from cloud import credential_providers, credentials
from cloud.caller import Before, Caller, Timeouts, Timing
from cloud.client import Cloud
from cloud.credential_cache import CredentialCache, Source
from cloud.errors import NotConfigured
from cloud.rate_limiter import RateLimiter
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

    *may_write* raises when nothing may be changed any more, *sleep* when waiting is to end: see `Caller`.
    NotConfigured without a region.
    """
    if not settings.region:
        raise NotConfigured(
            "NoRegion", "cloud.region is empty; write for example ap-singapore", action="connect"
        )
    source = _source(settings, environ)
    calls = Caller(
        Transport(settings, settings.region, source),
        RateLimiter(settings.rate_share, sleep=sleep),
        Timeouts(settings.call_timeout, settings.attempt_timeout),
        Before(may_write, source),
        Timing(sleep=sleep),
    )
    return Cloud(calls)


def _source(settings: CloudSettings, environ: Mapping[str, str]) -> Source:
    return credentials.source(
        settings,
        environ,
        role=CredentialCache(partial(credential_providers.from_machine, settings.cvm_role)),
        oidc=CredentialCache(partial(credential_providers.from_pod_identity, settings, environ)),
    )
