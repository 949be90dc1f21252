"""Several servers, two leaders with stale caches, crashes and unguarded deletions: no reservation is lost, all end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from calico.segment import IPReservation, Record
from controllers.ip_reservation import compaction
from controllers.ip_reservation.compaction import Compaction
from controllers.ip_reservation.copies import by_identity, merged
from controllers.ip_reservation.release_planner import (
    Asking,
    Change,
    Life,
    Pods,
    asking_of,
    may_be_given_back,
    plan,
)
from settings import IPReservationSettings
from tests.factories import NOW, record, segment

SETTINGS = IPReservationSettings.model_validate(
    {"ipReserveTime": "40m", "giveBackAfter": "2m", "ipReserveMaxCount": 10_000, "segmentMaxEntries": 6}
)
HOLD, GIVE_BACK = timedelta(minutes=40), timedelta(minutes=2)
REPEATS = timedelta(seconds=10)
"""How long a write is repeated whose answer was lost: the longest timeout of the webhook."""
PODS = [f"uid-{n}" for n in range(3)]
OLD = "drawbridge-old"
LEADERS = st.sampled_from([0, 1])
RUNNING, TERMINATING, GONE = Life.RUNNING, Life.TERMINATING, Life.GONE


@dataclass
class Truth:
    """A pod: *asked* are the deletions of it that were admitted."""

    life: Life = RUNNING
    asked: datetime | None = None
    ended: datetime | None = None


@dataclass
class Leader:
    """It sees the history up to *seen*, has *pending* actions, and knows what the manager's memory holds."""

    seen: int
    made: dict[str, tuple[int, IPReservation]] = field(default_factory=dict)
    pending: list[Change | Compaction] = field(default_factory=list)
    first_seen: dict[Asking, datetime] = field(default_factory=dict)
    ends: dict[str, datetime] = field(default_factory=dict)
    lives: dict[str, Life] = field(default_factory=dict)


class World(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now, self.version, self.made = NOW, 1, 0
        self.history: list[Mapping[str, IPReservation]] = [{}]
        self.pods = {uid: Truth() for uid in PODS}
        self.lost: list[tuple[datetime, str, Sequence[Record]]] = []
        self.leaders = [Leader(0), Leader(0)]

    @initialize()
    def few(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(compaction, "FEW", 2)

    # the API server

    @property
    def stored(self) -> Mapping[str, IPReservation]:
        return self.history[-1]

    def store(
        self, name: str, records: Sequence[Record] | None, level: int | None = None
    ) -> IPReservation | None:
        after = dict(self.stored)
        old = after.pop(name, None)
        if records is None:
            self.history.append(after)
            return None
        self.version += 1
        created = old.metadata.creation_timestamp if old else self.now
        made = segment(*records, name=name, version=str(self.version), level=level)
        after[name] = replace(made, metadata=replace(made.metadata, creation_timestamp=created))
        self.history.append(after)
        return after[name]

    # servers

    @rule(uids=st.lists(st.sampled_from(PODS), min_size=1, max_size=3, unique=True), is_lost=st.booleans())
    def reserve(self, uids: Sequence[str], is_lost: bool) -> None:
        """A batch. An answer that is lost: the write may come once more, whatever became of the first one."""
        records = [self.record_of(uid) for uid in uids if self.pods[uid].life is RUNNING]
        self.made += 1
        name = f"drawbridge-{self.made * 7919 % 10007:05}"  # in no order of time
        if not records:
            return
        if is_lost:
            self.lost.append((self.now, name, records))
        self.store(name, records, 0)
        self.admit(records)

    @precondition(lambda self: self.lost)
    @rule()
    def repeat(self) -> None:
        since, name, records = self.lost.pop(0)
        if self.now - since < REPEATS and name not in self.stored:
            self.store(name, records, 0)

    @rule(uid=st.sampled_from(PODS))
    def append(self, uid: str) -> None:
        """A server of an earlier version."""
        if self.pods[uid].life is RUNNING:
            new = self.record_of(uid)
            held = {each.key: each for each in self.stored[OLD].records} if OLD in self.stored else {}
            before = held.get(new.key)
            held[new.key] = replace(before, asked=new.at) if before else new
            self.store(OLD, list(held.values()), None)
            self.admit([new])

    def record_of(self, uid: str) -> Record:
        return record(f"10.0.0.{PODS.index(uid)}/32", uid=uid, at=self.now)

    def admit(self, records: Sequence[Record]) -> None:
        for each in records:
            self.pods[each.uid].asked = self.now

    # pods

    @rule(uid=st.sampled_from(PODS))
    def terminate(self, uid: str) -> None:
        pod = self.pods[uid]
        if pod.life is RUNNING and pod.asked and self.now - pod.asked < GIVE_BACK:
            pod.life = TERMINATING

    @rule(uid=st.sampled_from(PODS))
    def end(self, uid: str) -> None:
        pod = self.pods[uid]
        if pod.life is TERMINATING:
            pod.life, pod.ended = GONE, self.now

    @rule(seconds=st.sampled_from([1, 61, 119, 1200]))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    # leaders

    @rule(number=LEADERS)
    def crash(self, number: int) -> None:
        self.leaders[number] = Leader(len(self.history) - 1)
        self.watch(number, 0)

    @rule(number=LEADERS, count=st.integers(0, 5))
    def watch(self, number: int, count: int) -> None:
        """See *count* more writes, or all if it is 0; and the pods."""
        leader, last = self.leaders[number], len(self.history) - 1
        leader.seen = min(last, leader.seen + count) if count else last
        leader.made = {name: each for name, each in leader.made.items() if each[0] > leader.seen}
        for uid, pod in self.pods.items():
            if leader.lives.get(uid, GONE) is not GONE and pod.life is GONE:
                leader.ends[self.record_of(uid).key] = self.now
            leader.lives[uid] = pod.life

    @rule(number=LEADERS, quiet=st.booleans())
    def decide(self, number: int, quiet: bool) -> None:
        leader = self.leaders[number]
        shown = [*self.history[leader.seen].values(), *(each for _, each in leader.made.values())]
        records = [merged(copies) for copies in by_identity(shown).values()]
        lives = dict(leader.lives)
        askings = {asking_of(each) for each in records if lives[each.uid] is RUNNING}
        leader.first_seen = {each: leader.first_seen.get(each, self.now) for each in askings}
        waits = {each: (self.now - since).total_seconds() for each, since in leader.first_seen.items()}
        pods = Pods(lives, waits, leader.ends)
        lives |= {
            each.uid: self.pods[each.uid].life for each in records if may_be_given_back(each, pods, SETTINGS)
        }
        planned = plan(shown, pods, SETTINGS, self.now, quiet=quiet)
        leader.pending = [*planned.changes, *planned.compactions]

    @rule(number=LEADERS, count=st.integers(1, 6))
    def act(self, number: int, count: int) -> None:
        leader = self.leaders[number]
        for action in leader.pending[:count]:
            if isinstance(action, Compaction):
                self.compact(leader, action)
            elif action.delete and action.segment.level is not None:
                self.store(action.segment.metadata.name, None)  # guarded by nothing
            else:
                self.change(action)
        leader.pending = leader.pending[count:]

    @rule(number=LEADERS, quiet=st.booleans())
    def run(self, number: int, quiet: bool) -> None:
        """A whole pass on what is there."""
        self.watch(number, 0)
        self.decide(number, quiet)
        self.act(number, 10_000)

    def compact(self, leader: Leader, action: Compaction) -> None:
        self.made += 1
        name = f"drawbridge-compacted-{self.made * 7919 % 10007:05}"
        made = self.store(name, action.records, action.level)
        assert made is not None
        leader.made[name] = len(self.history) - 1, made

    def change(self, action: Change) -> None:
        """Guarded by the version that was seen."""
        name = action.segment.metadata.name
        live = self.stored.get(name)
        if live is not None and live.metadata.resource_version == action.segment.metadata.resource_version:
            self.store(name, None if action.delete else action.kept, action.segment.level)

    # what must hold

    @invariant()
    def no_reservation_is_lost(self) -> None:
        held = {record.uid for each in self.stored.values() for record in each.records}
        assert {uid for uid in self.pods if not self.is_over(uid)} <= held

    @invariant()
    def a_labelled_segment_only_loses_records(self) -> None:
        if len(self.history) > 1:
            before, after = self.history[-2], self.history[-1]
            for name in before.keys() & after.keys() - {OLD}:
                assert {*after[name].keys} <= {*before[name].keys}

    def is_over(self, uid: str) -> bool:
        pod = self.pods[uid]
        if pod.asked is None:
            return True
        if pod.life is RUNNING:
            return self.now - pod.asked >= GIVE_BACK
        return pod.ended is not None and self.now - pod.ended >= HOLD

    def teardown(self) -> None:
        try:
            self.no_reservation_is_lost()
            self.crash(0)
            for _ in self.passes(8):
                assert sum(compaction.is_small(each, SETTINGS) for each in self.stored.values()) < 2, (
                    "not compacted"
                )
            for _ in self.passes(4, seconds=60):
                pass
            self.wait(int(HOLD.total_seconds()))
            for _ in self.passes(4, seconds=60):
                self.no_reservation_is_lost()
            held = {record.uid for each in self.stored.values() for record in each.records}
            assert held == {uid for uid, pod in self.pods.items() if pod.life is TERMINATING}, "not released"
        finally:
            self.patch.undo()

    def passes(self, count: int, seconds: int = 1) -> Iterator[None]:
        """Of one leader; yields when they are done."""
        for _ in range(count):
            self.wait(seconds)
            self.run(0, quiet=True)
        self.watch(0, 0)
        yield


World.TestCase.settings = settings(
    max_examples=300, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestWorld = World.TestCase
