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
from webhook.ip_reservation import BY_KUBELET, DISRUPTION, records_of, unselected

KUBELET_EVICTED = "evicted by the kubelet"
TERMINATING = "seen terminating"
GONE = "seen gone"

KUBELET_REASONS = ("Evicted", "NodeShutdown", "Terminated", "Shutdown", "Preempting", "NodeLost")
"""status.reason of pods that a kubelet ended: node pressure, node shutdown, critical pods."""


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
    if kubelet_evicted(pod) and departure.seen - _evicted_at(departure) >= timedelta(
        seconds=settings.ip_reserve_time
    ):
        return "evicted so long ago that the hold is over"
    if pod.finished and not kubelet_evicted(pod):
        return f"phase {pod.status.phase}"
    return records_of(pod, reason=_reason(departure), at=departure.seen, late=True)


def kubelet_evicted(pod: Pod) -> bool:
    if pod.status.phase != "Failed":
        return False
    by_kubelet = any(each.type == DISRUPTION and each.reason == BY_KUBELET for each in pod.status.conditions)
    return by_kubelet or pod.status.reason in KUBELET_REASONS


def _reason(departure: Departure) -> str:
    if kubelet_evicted(departure.pod):
        return KUBELET_EVICTED
    return GONE if departure.gone else TERMINATING


def _evicted_at(departure: Departure) -> datetime:
    times = {each.type: each.last_transition_time for each in departure.pod.status.conditions}
    return times.get(DISRUPTION) or times.get("Ready") or departure.seen
