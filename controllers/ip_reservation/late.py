"""Watches pods go and reserves, late, for those that have no record."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import structlog
from prometheus_client import Counter

from calico.ledger import Ledger
from calico.reservations import Reservations
from calico.segment import IPReservation, Record
from controllers.ip_reservation.backstop import Departure, decide, is_departure
from controllers.runtime import WorkQueue
from kube.events import Recorder, Regarding
from kube.objects import Namespace, OwnerReference, Pod
from kube.reflector import Reflector
from settings import IPReservationSettings
from webhook.ip_reservation import kubelet_evicted

LATE = Counter(
    "drawbridge_late_reservations",
    "Addresses reserved although their pod never passed admission.",
    ["reason"],
)

CATCH_UP = 1.0
"""Seconds in which the watch of the reservations may lag behind the watch of the pods."""
DEADLINE = 30.0

log = structlog.get_logger(__name__)


class LateReservations:
    """Keyed by pod uid; :meth:`observe` is the pods' change handler."""

    def __init__(
        self,
        queue: WorkQueue,
        *,
        segments: Reflector[IPReservation],
        namespaces: Reflector[Namespace],
        reservations: Reservations,
        ledger: Ledger,
        owner_is_deleted: Callable[[str, OwnerReference], bool],
        settings: Callable[[], IPReservationSettings],
        recorder: Recorder,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._queue, self._segments, self._namespaces = queue, segments, namespaces
        self._reservations, self._ledger, self._owner_is_deleted = reservations, ledger, owner_is_deleted
        self._settings, self._recorder, self._now = settings, recorder, now
        self._departures: dict[str, Departure] = {}
        self._evicted: set[str] = set()
        self._listed: tuple[datetime, frozenset[str]] = (datetime.min.replace(tzinfo=UTC), frozenset())

    def observe(self, old: Pod | None, new: Pod | None) -> None:
        pod, gone = new or old, new is None
        if pod is None or self._namespaces.get(pod.metadata.namespace) is None:
            return
        uid = pod.metadata.uid
        if uid in self._evicted:
            if gone:
                self._evicted.discard(uid)
        elif is_departure(pod, gone=gone):
            self._departures[uid] = Departure(pod, gone, self._now())
            self._queue.add(uid)

    def reconcile(self, uid: str) -> float | None:
        departure = self._departures.get(uid)
        if departure is None:
            return None
        records = decide(departure, self._annotations(departure.pod), self._settings())
        if not isinstance(records, str) and not self._is_recorded(uid):
            if self._now() - departure.seen < timedelta(seconds=CATCH_UP):
                return CATCH_UP
            self._reserve(departure, records)
        self._finish(uid, departure)
        return None

    def _reserve(self, departure: Departure, records: Sequence[Record]) -> None:
        if departure.pod.metadata.uid in self._uids_listed_since(departure.seen):
            return
        if not self._goes_with_owner(departure.pod):
            self._ledger.reserve(records, time.monotonic() + DEADLINE)
            self._tell(departure, records[0].reason)

    def _finish(self, uid: str, departure: Departure) -> None:
        if kubelet_evicted(departure.pod) and not departure.gone:
            self._evicted.add(uid)
        if self._departures.get(uid) is departure:
            del self._departures[uid]

    def _is_recorded(self, uid: str) -> bool:
        return bool(self._segments.by_index("uid", uid))

    def _annotations(self, pod: Pod) -> dict[str, str]:
        namespace = self._namespaces.get(pod.metadata.namespace)
        return namespace.metadata.annotations if namespace else {}

    def _uids_listed_since(self, moment: datetime) -> frozenset[str]:
        """Pods with a record, by the API server's word: one list serves all who began to wait before it."""
        listed_at, uids = self._listed
        if listed_at <= moment:
            listed_at = self._now()
            segments = self._reservations.list()
            uids = frozenset(record.uid for each in segments if each.ours for record in each.records)
            self._listed = (listed_at, uids)
        return uids

    def _goes_with_owner(self, pod: Pod) -> bool:
        owner = pod.metadata.controller
        if owner is None or kubelet_evicted(pod) or not self._settings().skip_when_owner_is_deleted:
            return False
        return self._owner_is_deleted(pod.metadata.namespace, owner)

    def _tell(self, departure: Departure, reason: str) -> None:
        pod = departure.pod.metadata
        LATE.labels(reason).inc()
        log.warning("address reserved late", pod=f"{pod.namespace}/{pod.name}", uid=pod.uid, reason=reason)
        self._recorder.event(
            Regarding.pod(pod.namespace, pod.name, pod.uid),
            "IPReservedLate",
            f"The pod never passed admission ({reason}): its address, reserved now, may have been free for a moment",
            type="Warning",
        )
