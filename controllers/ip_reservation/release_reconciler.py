"""Every few seconds: note which pods ended, release what is due, and report what is reserved."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from calico.reservations import Reservations
from controllers.clock import Clock
from controllers.ip_reservation.observers import Removals
from controllers.ip_reservation.release_planner import Change, plan
from controllers.ip_reservation.reporter import Reporter
from controllers.ip_reservation.snapshot import SnapshotReader
from kube.errors import Conflict, KubeError, NotFound
from settings import IPReservationSettings

STALE = 150.0
"""Seconds of silence of the pods' watch: two bookmarks have been missed, and a reconnection, too."""

log = structlog.get_logger(__name__)


class ReleaseReconciler:
    """There is one key: a total limits all segments together."""

    def __init__(
        self,
        reader: SnapshotReader,
        reservations: Reservations,
        removals: Removals,
        settings: Callable[[], IPReservationSettings],
        reporter: Reporter,
        clock: Clock,
    ) -> None:
        self._reader, self._reservations, self._removals = reader, reservations, removals
        self._settings, self._reporter, self._clock = settings, reporter, clock

    def reconcile(self, _key: str) -> float:
        """Release nothing while the cache of pods may be older than their ends."""
        settings, now = self._settings(), self._clock.now()
        if self._reader.silence > STALE:
            log.warning("release paused, watch of pods is silent", seconds=self._reader.silence)
            return settings.ip_release_period
        snapshot = self._reader.read(settings)
        for change in plan(snapshot.ours, snapshot.pods, settings, now):
            self._apply(change)
        self._reporter.inventory(snapshot.everything, snapshot.ours, settings)
        return settings.ip_release_period

    def _apply(self, change: Change) -> None:
        name, kept = change.segment.metadata.name, {record.key for record in change.kept}
        # Before the write: the watch may deliver it before its answer is here.
        self._removals.note_own(name, (each for each in change.segment.records if each.key not in kept))
        try:
            if change.delete:
                self._reservations.delete(change.segment)
            else:
                self._reservations.write(change.segment, change.kept, timeout=5.0)
        except (Conflict, NotFound):
            return  # another client has written since: the next run reads it
        except KubeError as error:
            # One segment that cannot be written must not keep the others from being released.
            log.warning("segment not written", name=name, error=str(error))
            return
        self._reporter.released(change.segment, change.released)
