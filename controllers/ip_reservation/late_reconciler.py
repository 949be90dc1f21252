"""Reserve the addresses of pods that go without a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from calico.segment import IPReservation, Record
from controllers.ip_reservation.late_planner import Departure, decide, passes_admission
from controllers.ip_reservation.observers import Departures
from controllers.ip_reservation.reporter import Reporter
from controllers.ip_reservation.snapshot import Caches, LiveReader
from kube.types import Pod
from settings import IPReservationSettings
from webhook.ip_reservation import kubelet_evicted

CATCH_UP = 1.0
"""Seconds in which the watch of the reservations may lag behind the watch of the pods."""


class LateReconciler:
    """Keyed by pod uid."""

    def __init__(
        self,
        departures: Departures,
        caches: Caches,
        live: LiveReader,
        reserve: Callable[[Sequence[Record]], IPReservation],
        settings: Callable[[], IPReservationSettings],
        reporter: Reporter,
    ) -> None:
        self._departures, self._caches, self._live = departures, caches, live
        self._reserve, self._settings, self._reporter = reserve, settings, reporter

    def reconcile(self, uid: str) -> float | None:
        departure = self._departures.of(uid)
        if departure is None:
            return None
        missing = self._missing(departure)
        if missing:
            waited = self._departures.waited(departure)
            if passes_admission(departure) and waited < CATCH_UP:
                return CATCH_UP - waited
            self._reserve_late(departure, missing)
        self._departures.forget(uid)
        return None

    def _missing(self, departure: Departure) -> Sequence[Record]:
        """By the caches."""
        records = decide(departure, self._annotations(departure.pod), self._settings())
        return (
            []
            if isinstance(records, str)
            else [each for each in records if not self._caches.is_reserved(each)]
        )

    def _reserve_late(self, departure: Departure, records: Sequence[Record]) -> None:
        reserved = self._live.reserved_since(departure.since)
        missing = [record for record in records if record.key not in reserved]
        if missing and not self._goes_with_owner(departure.pod):
            segment = self._reserve(missing)
            self._reporter.reserved_late(departure.pod, missing[0].reason, segment)

    def _annotations(self, pod: Pod) -> Mapping[str, str]:
        namespace = self._caches.namespaces.get(pod.metadata.namespace)
        return namespace.metadata.annotations if namespace else {}

    def _goes_with_owner(self, pod: Pod) -> bool:
        owner = pod.metadata.controller
        if owner is None or kubelet_evicted(pod) or not self._settings().skip_when_owner_is_deleted:
            return False
        return self._live.is_owner_deleted(pod.metadata.namespace, owner)
