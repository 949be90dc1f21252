"""Whatever the leader's watches miss, what is forged never counts and goes, and what is true stays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from api.ip_reservation import records_of
from calico.segment import IPReservation, Record
from controllers.controller import Clock
from controllers.ip_reservation import release_planner
from controllers.ip_reservation.confirmations import Confirmations, PodAddresses
from controllers.ip_reservation.release_planner import Cause, Change, Pods, life_of, plan
from kube.types import Pod
from settings import IPReservationSettings
from tests.factories import NOW, pod, record, segment
from tests.fakes import FakeClock

SETTINGS = IPReservationSettings.model_validate({"duration": "40m", "maxCount": 2})
ADDRESSES = [f"10.0.0.{n}" for n in range(1, 5)]
Event = tuple[int, Pod | None, Pod | None]


class World(RuleBasedStateMachine):
    """Watches lag, break and list again, leaders change, and records are written at every moment."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.made = 1, 0
        self.pods: dict[str, Pod] = {}
        self.events: list[Event] = []
        self.gone: list[Pod] = []
        self.stored: dict[str, IPReservation] = {}
        self.admitted: set[str] = set()
        self.true: set[str] = set()
        self.excused: set[str] = set()
        self.dropped: set[str] = set()
        self.lead()

    # the leader

    @rule(is_new_leader=st.booleans())
    def miss(self, is_new_leader: bool) -> None:
        if is_new_leader:
            self.lead()
        else:
            self.list_pods()

    def lead(self) -> None:
        self.seconds = FakeClock()
        self.clock = Clock(lambda: NOW, self.seconds)
        self.addresses = PodAddresses(self.clock)
        self.cache: dict[str, Pod] = {}
        self.version, self.lists, self.shown = 0, 0, dict(self.stored)
        self.confirmations = Confirmations(self, self.addresses, self, self.clock)
        self.list_pods()

    def list_pods(self) -> None:
        """After a watch that broke: what came and went meanwhile is not seen."""
        changes: list[tuple[Pod | None, Pod | None]] = [
            (old, None) for uid, old in self.cache.items() if uid not in self.pods
        ]
        changes += [(self.cache.get(uid), new) for uid, new in self.pods.items()]
        self.cache = dict(self.pods)
        self.lists += 1
        for old, new in changes:
            self.addresses.observe(old, new)
        self.events, self.version = [], self.written

    @rule(count=st.integers(1, 4))
    def watch_pods(self, count: int) -> None:
        for _ in range(min(count, len(self.events))):
            version, old, new = self.events.pop(0)
            each = new or old
            assert each is not None
            self.cache.pop(each.metadata.uid, None)
            if new:
                self.cache[new.metadata.uid] = new
            self.addresses.observe(old, new)
            self.version = version
        if not self.events:
            self.version = self.written  # a bookmark

    @initialize()
    def compact_soon(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(release_planner, "FEW", 2)

    @rule(is_shown=st.booleans(), quiet=st.booleans())
    def reconcile(self, is_shown: bool = True, quiet: bool = False) -> None:
        if is_shown:
            self.shown = dict(self.stored)
        segments = list(self.shown.values())
        if self.confirmations._continuity != (self.lists, self.addresses.forgotten):
            self.excused |= {key for each in [*segments, *self.stored.values()] for key in each.keys}
        unconfirmed, forged = self.confirmations.read(segments)
        records = [record for each in segments for record in each.records]
        lives = {each.uid: life_of(self.cache.get(each.uid)) for each in records}
        ends = {each.key: end for each in records if (end := self.addresses.ended(each))}
        planned = plan(segments, Pods(lives, {}, ends, unconfirmed, forged), SETTINGS, NOW, quiet=quiet)
        for change in planned.changes:
            self.apply(change)
        for each in planned.compactions:
            self.store(self.new_name(), each.records, each.level)

    def apply(self, change: Change) -> None:
        name = change.segment.metadata.name
        live = self.stored.get(name)
        if live is None or live.metadata.resource_version != change.segment.metadata.resource_version:
            return  # a conflict
        if change.delete:
            del self.stored[name]
        else:
            self.store(name, change.kept, live.level or 0)
        for each, cause in change.released:
            if cause is Cause.FORGED:
                self.dropped.add(each.key)
            else:
                self.admitted.discard(each.key)  # kept as promised: what comes later is a repetition

    # what the leader reads

    def reserved_since(self, moment: float) -> Sequence[str]:
        return [key for each in self.stored.values() for key in each.keys]

    def pod_of(self, record: Record, timeout: float) -> Pod | None:
        return self.pods.get(record.uid)

    # the cluster

    def change(self, old: Pod | None, new: Pod | None) -> None:
        self.written += 1
        self.events.append((self.written, old, new))
        for each in (old, new):
            if each is not None:
                self.pods.pop(each.metadata.uid, None)
        if new is not None:
            self.pods[new.metadata.uid] = new
            self.true |= {each.key for each in records_of(new, SETTINGS, reason="", at=NOW)}
        elif old is not None:
            self.gone.append(old)

    def store(self, name: str, records: Sequence[Record], level: int = 0) -> None:
        self.written += 1
        self.stored[name] = segment(*records, name=name, version=str(self.written), level=level)

    def new_name(self) -> str:
        self.made += 1
        return f"drawbridge-{self.made * 7919 % 10007:05}"  # in no order of time

    @rule(address=st.sampled_from(ADDRESSES))
    def create(self, address: str) -> None:
        self.made += 1
        self.change(None, pod(f"redis-{self.made}", ip=address))

    @rule(address=st.sampled_from(ADDRESSES))
    def create_and_delete(self, address: str) -> None:
        """A pod whose whole life is between two looks of the leader."""
        self.create(address)
        [(uid, going)] = [*self.pods.items()][-1:]
        self.admit_one(going)
        self.change(self.pods[uid], None)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def admit(self, data: st.DataObject) -> None:
        self.admit_one(self.pods[data.draw(st.sampled_from(sorted(self.pods)))])

    def admit_one(self, going: Pod) -> None:
        records = records_of(going, SETTINGS, reason="deleted", at=NOW)
        self.reserve(records)
        self.admitted |= {each.key for each in records}

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.change(self.pods[data.draw(st.sampled_from(sorted(self.pods)))], None)

    def reserve(self, records: Sequence[Record]) -> None:
        self.store(self.new_name(), records)

    # the forger

    @rule(addresses=st.lists(st.sampled_from(ADDRESSES), min_size=1, max_size=2, unique=True))
    def forge(self, addresses: list[str]) -> None:
        self.made += 1
        self.reserve([record(f"{each}/32", uid=f"forged-{self.made}", at=NOW) for each in addresses])

    @precondition(lambda self: self.pods or self.gone)
    @rule(data=st.data(), address=st.sampled_from(ADDRESSES))
    def forge_for_a_pod(self, data: st.DataObject, address: str) -> None:
        known = data.draw(st.sampled_from([*self.pods.values(), *self.gone]))
        self.reserve([record(f"{address}/32", uid=known.metadata.uid, at=NOW)])

    # what must hold

    @invariant()
    def nothing_that_was_admitted_is_dropped(self) -> None:
        assert not self.dropped & self.admitted
        assert self.admitted <= self.there, "a true record is lost"

    @invariant()
    def nothing_that_is_forged_counts(self) -> None:
        records = [record for each in self.stored.values() for record in each.records]
        assert {each.key for each in records if each.ended} <= self.true | self.excused

    @property
    def there(self) -> set[str]:
        return {key for each in self.stored.values() for key in each.keys}

    def teardown(self) -> None:
        self.patch.undo()
        self.reconcile()
        for _ in range(3):
            self.watch_pods(len(self.events) + 1)
            self.reconcile()
        assert self.there <= self.true | self.excused, "a forged record stays"
        assert not self.dropped & self.admitted


World.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestWorld = World.TestCase
