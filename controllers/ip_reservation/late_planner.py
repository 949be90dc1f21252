"""Plan reservations for selected pods that go without having passed admission.

The kubelet evicted them, or they terminate or are gone without a record because the webhook failed open or was not
installed yet. Their records are marked late: the address may have been free for a moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from api.ip_reservation import (
    disrupted,
    kubelet_evicted,
    records_of,
    records_of_evicted,
    unselected,
)
from calico.segment import Record
from kube.types import Pod
from settings import IPReservationSettings

TERMINATING = "seen terminating"
GONE = "seen gone"


@dataclass(frozen=True)
class Departure:
    """A pod as it was first seen going, and whether it is *gone* by now.

    *seen* is when, for the record; *since* the same on the monotonic clock, for waiting.
    """

    pod: Pod
    gone: bool
    seen: datetime
    since: float = 0.0


def is_departure(pod: Pod, *, gone: bool) -> bool:
    return bool(pod.status.addresses) and (gone or pod.terminating or kubelet_evicted(pod))


def with_addresses(pod: Pod, before: Pod | None) -> Pod:
    """*pod* with the addresses that it had *before*: a kubelet that rejects a running pod removes them."""
    if before is None or pod.status.addresses:
        return pod
    return replace(
        pod, status=replace(pod.status, pod_ips=before.status.pod_ips, pod_ip=before.status.pod_ip)
    )


def passes_admission(departure: Departure) -> bool:
    """Whether the pod may be on its way through admission, and its record on its way to us."""
    pod = departure.pod
    return departure.gone or pod.terminating or not kubelet_evicted(pod)


def decide(
    departure: Departure, namespace_annotations: Mapping[str, str], settings: IPReservationSettings
) -> Sequence[Record]:
    """What to reserve late for a pod that has no record."""
    pod = departure.pod
    if unselected(pod, namespace_annotations, settings):
        return ()
    if kubelet_evicted(pod):
        records = records_of_evicted(pod, settings, departure.seen)
        return () if isinstance(records, str) else [replace(each, ended=departure.seen) for each in records]
    # A kubelet marks a pod that it ends as finished just before it is gone: that excuses none that was deleted.
    if pod.finished and not pod.terminating and not disrupted(pod):
        return ()
    reason = GONE if departure.gone else TERMINATING
    return records_of(pod, settings, reason=reason, at=departure.seen, late=True)
