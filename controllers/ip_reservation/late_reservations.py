"""Watches pods go and reserves, late, for those that have no record."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import structlog
from prometheus_client import Counter

from calico.ledger import Ledger
from calico.reservations import Reservations
from calico.segment import IPReservation, Record
from controllers.ip_reservation.held import Held, held_by, held_in
from controllers.ip_reservation.late_plan import (
    GONE,
    TERMINATING,
    Departure,
    decide,
    is_departure,
    passes_admission,
    with_addresses,
)
from controllers.workqueue import WorkQueue
from kube.event_recorder import EventRecorder, Regarding
from kube.informer import Informer
from kube.types import Namespace, OwnerReference, Pod
from settings import IPReservationSettings
from webhook.ip_reservation import KUBELET_EVICTED, kubelet_evicted

LATE = Counter(
    "drawbridge_late_reservations",
    "Addresses reserved although their pod never passed admission.",
    ["reason"],
)

for _reason in (TERMINATING, GONE, KUBELET_EVICTED):
    LATE.labels(_reason)  # from zero on: a scraper cannot tell a first one from a new series

CATCH_UP = 1.0
"""Seconds in which the watch of the reservations may lag behind the watch of the pods."""
DEADLINE = 8.0
"""Seconds for one reservation; a leader that is told to stop waits for those that have begun."""

log = structlog.get_logger(__name__)


class LateReservations:
    """Keyed by pod uid; :meth:`observe` is the pods' change handler."""

    def __init__(
        self,
        queue: WorkQueue,
        *,
        segments: Informer[IPReservation],
        namespaces: Informer[Namespace],
        reservations: Reservations,
        ledger: Ledger,
        owner_is_deleted: Callable[[str, OwnerReference], bool],
        settings: Callable[[], IPReservationSettings],
        recorder: EventRecorder,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue, self._segments, self._namespaces = queue, segments, namespaces
        self._reservations, self._ledger, self._owner_is_deleted = reservations, ledger, owner_is_deleted
        self._settings, self._recorder, self._now, self._clock = settings, recorder, now, clock
        self._changing = threading.Lock()
        self._departures: dict[str, Departure] = {}
        self._evicted: set[str] = set()
        self._listed: tuple[float, frozenset[Held]] = (-math.inf, frozenset())

    def observe(self, old: Pod | None, new: Pod | None) -> None:
        pod, gone = new or old, new is None
        if pod is None or self._namespaces.get(pod.metadata.namespace) is None:
            return
        with self._changing:
            if pod.metadata.uid not in self._evicted:
                self._note(with_addresses(pod, old), gone)
            elif gone:
                self._evicted.discard(pod.metadata.uid)

    def _note(self, pod: Pod, gone: bool) -> None:
        """As it was when it began to go, it is judged: at its end it may have finished, and have no address."""
        uid = pod.metadata.uid
        first = self._departures.get(uid)
        if first is None and is_departure(pod, gone=gone):
            first = Departure(pod, gone, self._now(), self._clock())
        if first is not None:
            self._departures[uid] = replace(first, gone=gone)
            self._queue.add(uid)

    def reconcile(self, uid: str) -> float | None:
        departure = self._departures.get(uid)
        if departure is None:
            return None
        records = decide(departure, self._annotations(departure.pod), self._settings())
        missing = (
            [] if isinstance(records, str) else [each for each in records if not self._is_recorded(each)]
        )
        if missing:
            waited = self._clock() - departure.since
            if passes_admission(departure) and waited < CATCH_UP:
                return CATCH_UP - waited
            self._reserve(departure, missing)
        self._finish(uid)
        return None

    def _reserve(self, departure: Departure, records: Sequence[Record]) -> None:
        held = self._held_since(departure.since)
        missing = [record for record in records if held_by(record) not in held]
        if missing and not self._goes_with_owner(departure.pod):
            segment = self._ledger.reserve(missing, self._clock() + DEADLINE)
            self._report(departure, missing[0].reason, segment)

    def _finish(self, uid: str) -> None:
        with self._changing:
            departure = self._departures.pop(uid)
            if kubelet_evicted(departure.pod) and not departure.gone:
                self._evicted.add(uid)

    def _is_recorded(self, record: Record) -> bool:
        return bool(self._segments.by_index("held", held_by(record)))

    def _annotations(self, pod: Pod) -> dict[str, str]:
        namespace = self._namespaces.get(pod.metadata.namespace)
        return namespace.metadata.annotations if namespace else {}

    def _held_since(self, moment: float) -> frozenset[Held]:
        """By the API server's word: one list serves all who began to wait before it."""
        listed_at, held = self._listed
        if listed_at <= moment:
            listed_at = self._clock()
            segments = self._reservations.list()
            held = frozenset(key for segment in segments for key in held_in(segment))
            self._listed = (listed_at, held)
        return held

    def _goes_with_owner(self, pod: Pod) -> bool:
        owner = pod.metadata.controller
        if owner is None or kubelet_evicted(pod) or not self._settings().skip_when_owner_is_deleted:
            return False
        return self._owner_is_deleted(pod.metadata.namespace, owner)

    def _report(self, departure: Departure, reason: str, segment: IPReservation) -> None:
        pod = departure.pod.metadata
        LATE.labels(reason).inc()
        log.warning("address reserved late", pod=f"{pod.namespace}/{pod.name}", uid=pod.uid, reason=reason)
        self._recorder.event(
            Regarding.pod(pod.namespace, pod.name, pod.uid),
            "IPReservedLate",
            f"Pod {pod.namespace}/{pod.name} never passed admission ({reason}): its address, reserved now, may have"
            " been free for a moment",
            type="Warning",
            instead=Regarding.of(segment, self._reservations.resource(), "IPReservation"),
        )
