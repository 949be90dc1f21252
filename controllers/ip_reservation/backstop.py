"""A selected pod that never passed admission has its address reserved as soon as it is seen going.

That is a pod that the kubelet evicted, or one that is terminating or gone without a record because the webhook
was failing open or not yet installed. Its record says that it was late: the address may have been in
circulation for a moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from calico.segment import Record
from kube.objects import Pod
from settings import IPReservationSettings
from webhook.ip_reservation import (
    KUBELET_EVICTED,
    evicted_at,
    kubelet_evicted,
    records_of,
    unselected,
)

TERMINATING = "seen terminating"
GONE = "seen gone"


@dataclass(frozen=True)
class Departure:
    """A pod as it was last seen, going or *gone*, at *seen*."""

    pod: Pod
    gone: bool
    seen: datetime


def is_departure(pod: Pod, *, gone: bool) -> bool:
    return bool(pod.status.addresses) and (gone or pod.terminating or kubelet_evicted(pod))


def decide(
    departure: Departure,
    namespace_annotations: Mapping[str, str],
    settings: IPReservationSettings,
) -> Sequence[Record] | str:
    """What to reserve late for a pod that has no record, or why nothing."""
    pod = departure.pod
    if skipped := unselected(pod, namespace_annotations, settings):
        return skipped
    if kubelet_evicted(pod) and departure.seen - evicted_at(pod, departure.seen) >= timedelta(
        seconds=settings.ip_reserve_time
    ):
        return "evicted so long ago that the hold is over"
    # A kubelet marks a pod that it ends as finished just before it is gone: that excuses none that was deleted.
    if pod.finished and not pod.terminating and not kubelet_evicted(pod):
        return f"phase {pod.status.phase}"
    return records_of(pod, reason=_reason(departure), at=departure.seen, late=True)


def _reason(departure: Departure) -> str:
    if kubelet_evicted(departure.pod):
        return KUBELET_EVICTED
    return GONE if departure.gone else TERMINATING
