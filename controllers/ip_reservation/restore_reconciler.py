"""Reserve again what another client has taken out of a segment, or deleted with it, before its time is over.

Released addresses stay out, and so do those that a later reservation of their pod has replaced, that another segment
has, and that would be released by age anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from calico.segment import IPReservation, Record
from controllers.clock import Clock
from controllers.ip_reservation.observers import Removals
from controllers.ip_reservation.release_planner import is_over
from controllers.ip_reservation.reporter import Reporter
from controllers.ip_reservation.snapshot import Caches
from settings import IPReservationSettings


class RestoreReconciler:
    """Keyed by a segment's name."""

    def __init__(
        self,
        removals: Removals,
        caches: Caches,
        reserve: Callable[[Sequence[Record]], IPReservation],
        settings: Callable[[], IPReservationSettings],
        reporter: Reporter,
        clock: Clock,
    ) -> None:
        self._removals, self._caches, self._reserve = removals, caches, reserve
        self._settings, self._reporter, self._clock = settings, reporter, clock

    def reconcile(self, name: str) -> None:
        taken, settings, now = self._removals.of(name), self._settings(), self._clock.now()
        missing = [
            record
            for record in taken.values()
            if not self._caches.is_reserved(record) and not is_over(record, settings, now)
        ]
        if missing:
            self._reporter.restored(name, missing, self._reserve(missing))
        self._removals.forget(name, taken)
