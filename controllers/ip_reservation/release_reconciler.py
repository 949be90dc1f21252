"""Release reservations that are over, and compact small segments: one pass over all of them every few seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
import structlog

from calico.reservations import Reservations, new_name
from calico.segment import IPReservation, Record
from controllers.controller import Controller, Watch
from controllers.ip_reservation.calls import RoundRobin
from controllers.ip_reservation.pools import STALE
from controllers.ip_reservation.release_planner import (
    EARLY,
    FEW,
    MANY,
    Cause,
    Change,
    Compaction,
    Plan,
    Pods,
    is_ahead,
    is_small,
    plan,
)
from controllers.ip_reservation.reporter import Reporter
from controllers.ip_reservation.snapshot import Snapshot, SnapshotReader
from controllers.workqueue import WorkQueue
from kube.errors import Conflict, KubeError, NotFound
from settings import IPReservationSettings

SEGMENTS = "segments"
"""The one key: a total limits all segments together."""
AT_ONCE = 0.0
"""Run again without a pause."""
WRITES = 30.0
"""Seconds of one pass for writes; the others are made in the next one."""
MAKES_FREE = (Cause.AGE, Cause.BY_HAND, *EARLY)
"""Any pod may get such an address next."""

log = structlog.get_logger(__name__)


@dataclass
class ReleaseReconciler:
    """Note which pods ended, release what is due, compact small segments, and report what is reserved."""

    reader: SnapshotReader
    reservations: Reservations
    note_own: Callable[[str, Iterable[Record], Iterable[Record]], None]
    settings: Callable[[], IPReservationSettings]
    reporter: Reporter

    def __post_init__(self) -> None:
        live = self.reader.live
        self._clock, self._actions = live.clock, RoundRobin(live.clock, WRITES, live.is_over)
        self._creates = True
        self._small: set[str] = set()

    def controller(self, queue: WorkQueue) -> Controller:
        watch = Watch(self.reader.caches.segments, self.observe)
        return Controller(queue, self.reconcile, watch, first=[SEGMENTS])

    def observe(self, old: IPReservation | None, new: IPReservation | None) -> Iterable[str]:
        """Between two passes, a storm makes more small segments than Calico should read."""
        if old is not None:
            self._small.discard(old.metadata.name)
        if new is not None and is_small(new):
            self._small.add(new.metadata.name)
        return (SEGMENTS,) if old is None and len(self._small) >= MANY else ()

    def reconcile(self, _key: str) -> float:
        """Release nothing while the cache of pods may be older than their ends."""
        settings, now = self.settings(), self._clock.now()
        if (silence := self.reader.caches.pods.silence) > STALE:
            log.warning("release paused, watch of pods is silent", seconds=silence)
            return settings.release_period
        snapshot = self.reader.read(settings)
        planned = self._planned(snapshot, settings, now)
        actions: dict[str, Change | Compaction] = {}
        actions |= {change.segment.metadata.name: change for change in planned.changes}
        actions |= {compaction.records[0].key: compaction for compaction in planned.compactions}
        created = 0
        for action, _ in self._actions.of(actions):
            if isinstance(action, Change):
                self._write(action)
            else:
                created += self._compact(action)
        # The ends that no large segment has must be stored in the next pass: time counts from them.
        self._creates = created == len(planned.compactions)
        self.reporter.inventory(snapshot, settings)
        return AT_ONCE if created else settings.release_period

    def _planned(self, snapshot: Snapshot, settings: IPReservationSettings, now: datetime) -> Plan:
        """Nothing that was promised to a pod which the cache of pods does not have yet is made free."""

        def planned(pods: Pods) -> Plan:
            enough = (FEW if snapshot.quiet else MANY) if self._creates else None
            return plan(snapshot.ours, pods, settings, now, enough=enough, pools=snapshot.pools)

        found = planned(snapshot.pods)
        if not settings.same_address.enabled:
            return found
        made_free = [
            record
            for change in found.changes
            for record, cause in change.released
            if cause in MAKES_FREE and record.owner_uid
        ]
        if not (waiting := self.reader.waited_for(made_free)):
            return found
        return planned(replace(snapshot.pods, waiting=snapshot.pods.waiting | waiting))

    def _compact(self, compaction: Compaction) -> bool:
        """Create what takes the place of small segments, which the next run deletes."""
        name, records = new_name("compacted"), compaction.records
        caches = self.reader.caches
        owner = caches.claims.owner if any(map(is_ahead, records)) else None
        try:
            made = self.reservations.create(name, records, level=compaction.level, owner=owner, timeout=5.0)
        except KubeError as error:
            log.warning("segments not compacted", error=str(error))
            return False
        # The next pass decides on it, whenever the watch delivers it.
        caches.segments.wrote(msgspec.Raw(msgspec.json.encode(made)))
        self.reporter.compacted(compaction)
        return True

    def _write(self, change: Change) -> None:
        name, released = change.segment.metadata.name, [record for record, _ in change.released]
        stays = {record.key for record in (*change.kept, *released)}
        copies = [record for record in change.segment.records if record.key not in stays]
        # Before the write: the watch may deliver it before its answer is here.
        self.note_own(name, released, copies)
        # A finalizer would keep what is in the segment reserved: it is deleted when it is empty.
        is_blocked = change.segment.metadata.finalizers and change.segment.spec.reserved_cidrs
        try:
            if change.kept or is_blocked:
                self.reservations.write(change.segment, change.kept, timeout=5.0)
            else:
                self.reservations.delete(change.segment)
        except (Conflict, NotFound):
            return  # another client has written since: the next run reads it
        except KubeError as error:
            # One segment that cannot be written must not keep the others from being released.
            log.warning("segment not written", name=name, error=str(error))
            return
        self.reporter.released(change.segment, change.released)
