"""Release reservations that are over, reserve addresses of pods that were missed, and restore those taken out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from api.ip_reservation import kubelet_evicted
from calico.reservations import Reservations
from calico.segment import IPReservation, Record, name_of
from controllers.clock import Clock
from controllers.ip_reservation.compaction import Compaction
from controllers.ip_reservation.late_planner import Departure, decide, passes_admission
from controllers.ip_reservation.observers import Departures, Removals
from controllers.ip_reservation.release_planner import EARLY, Cause, Change, Plan, is_over, plan
from controllers.ip_reservation.reporter import Reporter
from controllers.ip_reservation.snapshot import Caches, LiveReader, Snapshot, SnapshotReader
from controllers.ip_reservation.turns import IsOver, Turns, never
from kube.errors import Conflict, KubeError, NotFound
from runtime import secrets
from settings import IPReservationSettings

CATCH_UP = 1.0
"""Seconds in which the watch of the reservations may lag behind the watch of the pods."""
AT_ONCE = 0.0
"""Run again without a pause."""
WRITES = 30.0
"""Seconds of one pass for writes of one kind; the others are made in the next one."""
STALE = 150.0
"""Seconds of silence of the pods' watch: two bookmarks have been missed, and a reconnection, too."""

MAKES_FREE = (Cause.AGE, Cause.BY_HAND, *EARLY)
"""Any pod may get such an address next."""

Settings = Callable[[], IPReservationSettings]
Reserve = Callable[[Sequence[Record]], IPReservation]
"""Make records durable; returns the segment that has the last of them, or raises NotReserved."""

log = structlog.get_logger(__name__)


@dataclass
class ReleaseReconciler:
    """Note which pods ended, release what is due, compact small segments, and report what is reserved.

    There is one key: a total limits all segments together.
    """

    reader: SnapshotReader
    reservations: Reservations
    removals: Removals
    settings: Settings
    reporter: Reporter
    clock: Clock
    is_over: IsOver = never

    def __post_init__(self) -> None:
        self._writes, self._late_writes, self._creations = (
            Turns(self.clock, WRITES, self.is_over) for _ in range(3)
        )

    def reconcile(self, _key: str) -> float:
        """Release nothing while the cache of pods may be older than their ends."""
        settings, now = self.settings(), self.clock.now()
        if self.reader.silence > STALE:
            log.warning("release paused, watch of pods is silent", seconds=self.reader.silence)
            return settings.ip_release_period
        snapshot = self.reader.read(settings)
        planned = self._planned(snapshot, settings, now)
        self._apply(planned.changes, self._writes)
        due = {each.records[0].key: each for each in planned.compactions}
        compacted = [self._compact(each) for each, _ in self._creations.of(due)]
        if compacted.count(True) < len(due):
            # The ends that no large segment has must be stored: time counts from them.
            self._apply(planned.uncompacted, self._late_writes)
        self.reporter.inventory(snapshot, settings)
        return AT_ONCE if any(compacted) else settings.ip_release_period

    def _planned(self, snapshot: Snapshot, settings: IPReservationSettings, now: datetime) -> Plan:
        """Nothing that was promised to a pod which the cache of pods does not have yet is made free."""
        planned = _plan(snapshot, settings, now)
        if not settings.same_address.enabled:
            return planned
        waiting = self.reader.waited_for(each for each in made_free(planned) if each.owner_uid)
        return _plan(waiting_for(waiting, snapshot), settings, now) if waiting else planned

    def _compact(self, compaction: Compaction) -> bool:
        """Create what takes the place of small segments, which the next run deletes."""
        try:
            name = name_of("compacted", secrets.token_hex(8))
            made = self.reservations.create_compacted(
                name, compaction.records, level=compaction.level, timeout=5.0
            )
        except KubeError as error:
            log.warning("segments not compacted", error=str(error))
            return False
        self.reader.wrote(made)
        self.reporter.compacted(compaction)
        return True

    def _apply(self, changes: Sequence[Change], turns: Turns) -> None:
        for change, _ in turns.of({each.segment.metadata.name: each for each in changes}):
            self._write(change)

    def _write(self, change: Change) -> None:
        name, kept = change.segment.metadata.name, {record.key for record in change.kept}
        # Before the write: the watch may deliver it before its answer is here.
        self.removals.note_own(name, (each for each in change.segment.records if each.key not in kept))
        try:
            if change.delete:
                self.reservations.delete(change.segment)
            else:
                self.reservations.write(change.segment, change.kept, timeout=5.0)
        except (Conflict, NotFound):
            return  # another client has written since: the next run reads it
        except KubeError as error:
            # One segment that cannot be written must not keep the others from being released.
            log.warning("segment not written", name=name, error=str(error))
            return
        self.reporter.released(change.segment, change.released)


def made_free(planned: Plan) -> Iterator[Record]:
    """What any pod may get when *planned* is carried out."""
    return (record for each in planned.changes for record, cause in each.released if cause in MAKES_FREE)


def waiting_for(keys: frozenset[str], snapshot: Snapshot) -> Snapshot:
    """With the records of these *keys* waiting for pods, too."""
    promises = snapshot.pods.promises
    promises = replace(promises, waiting=promises.waiting | keys)
    return replace(snapshot, pods=replace(snapshot.pods, promises=promises))


def _plan(snapshot: Snapshot, settings: IPReservationSettings, now: datetime) -> Plan:
    return plan(snapshot.ours, snapshot.pods, settings, now, quiet=snapshot.quiet, pools=snapshot.pools)


@dataclass(frozen=True)
class LateReconciler:
    """Reserve the addresses of a pod, by its uid, that goes without a record."""

    departures: Departures
    caches: Caches
    live: LiveReader
    reserve: Reserve
    settings: Settings
    reporter: Reporter

    def reconcile(self, uid: str) -> float | None:
        departure = self.departures.of(uid)
        if departure is None:
            return None
        if missing := self._missing(departure):
            waited = self.departures.waited(departure)
            if passes_admission(departure) and waited < CATCH_UP:
                return CATCH_UP - waited
            self._reserve_late(departure, missing)
        self.departures.forget(uid)
        return None

    def _missing(self, departure: Departure) -> Sequence[Record]:
        """By the caches."""
        settings = self.settings()
        if settings.workload_opt_in:  # it may be going before it was annotated
            departure = replace(departure, pod=self.caches.followed(departure.pod))
        namespace = self.caches.namespaces.get(departure.pod.metadata.namespace)
        records = decide(departure, namespace.metadata.annotations if namespace else {}, settings)
        return [each for each in records if not self.caches.is_reserved(each)]

    def _reserve_late(self, departure: Departure, records: Sequence[Record]) -> None:
        reserved = self.live.reserved_since(departure.since)
        missing = [record for record in records if record.key not in reserved]
        if missing and not self._goes_with_owner(departure):
            self.reporter.reserved_late(departure.pod, missing[0].reason, self.reserve(missing))

    def _goes_with_owner(self, departure: Departure) -> bool:
        pod, owner = departure.pod, departure.pod.metadata.controller
        if owner is None or kubelet_evicted(pod) or not self.settings().skip_when_owner_is_deleted:
            return False
        return self.live.is_owner_deleted(pod.metadata.namespace, owner)


@dataclass(frozen=True)
class RestoreReconciler:
    """Reserve again what another client has taken out of a segment, by its name, or deleted with it.

    Released addresses stay out, and so do those that a later reservation of their pod has replaced, that another
    segment has, and that would be released by age anyway.
    """

    removals: Removals
    caches: Caches
    reserve: Reserve
    settings: Settings
    reporter: Reporter
    clock: Clock

    def reconcile(self, name: str) -> None:
        taken, settings, now = self.removals.of(name), self.settings(), self.clock.now()
        missing = [
            record
            for record in taken.values()
            if not self.caches.is_reserved(record) and not is_over(record, settings, now)
        ]
        if missing:
            self.reporter.restored(name, missing, self.reserve(missing))
        self.removals.forget(name, taken)
