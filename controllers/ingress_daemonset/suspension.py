"""Attach all nodes and begin nothing, because nothing would attach them once the feature or the release is gone.

As `spec.paused`, and drains end, too. The spec, which a GitOps tool may have written, stays; the annotation expires.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from api.ingress_daemonset import PAUSED_UNTIL
from api.ingress_daemonset.types import IngressDaemonSet, time_of


def suspended_until(resource: IngressDaemonSet, now: datetime) -> datetime | None:
    """None while it is not."""
    until = time_of(resource.metadata.annotations.get(PAUSED_UNTIL, ""))
    return until if until and until > now else None


def suspended(resource: IngressDaemonSet) -> IngressDaemonSet:
    """*resource* as it is reconciled then."""
    return replace(resource, spec=replace(resource.spec, paused=True, drain_timeout_seconds=0))
