"""Whatever the leader's watches miss, what is forged never counts and goes, and what is true stays."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from calico.segment import IPReservation, Record, append
from controllers.clock import Clock
from controllers.ip_reservation.confirmations import Confirmations, PodAddresses
from controllers.ip_reservation.release_planner import Cause, Pods, life_of, plan
from kube.types import Pod
from settings import IPReservationSettings
from tests.factories import NOW, pod, record, segment
from tests.fakes import FakeClock
from webhook.ip_reservation import records_of

SETTINGS = IPReservationSettings.model_validate({"ipReserveTime": "40m", "ipReserveMaxCount": 2})
NAMES = ["drawbridge-a", "drawbridge-b"]
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
        self.stored = {name: segment(name=name, version="1") for name in NAMES}
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

    @rule(is_shown=st.booleans())
    def reconcile(self, is_shown: bool = True) -> None:
        if is_shown:
            self.shown = dict(self.stored)
        segments = list(self.shown.values())
        if self.confirmations._continuity != (self.lists, self.addresses.forgotten):
            self.excused |= {key for each in [*segments, *self.stored.values()] for key in each.keys}
        doubted = self.confirmations.read(segments)
        records = [record for each in segments for record in each.records]
        lives = {each.uid: life_of(self.cache.get(each.uid)) for each in records}
        ends = {each.key: end for each in records if (end := self.addresses.ended(each))}
        for change in plan(segments, Pods(lives, {}, ends, doubted), SETTINGS, NOW):
            self.apply(change.segment, change.kept, change.released)

    def apply(
        self, seen: IPReservation, kept: Sequence[Record], released: Sequence[tuple[Record, Cause]]
    ) -> None:
        name = seen.metadata.name
        if self.stored[name].metadata.resource_version != seen.metadata.resource_version:
            return  # a conflict
        self.store(name, kept)
        for each, cause in released:
            if cause is Cause.FORGED:
                self.dropped.add(each.key)
            else:
                self.admitted.discard(each.key)  # kept as promised: what comes later is a repetition

    # what the leader reads

    def reserved_since(self, moment: float) -> Sequence[str]:
        return [key for each in self.stored.values() for key in each.keys]

    def has_pod_of(self, record: Record) -> bool:
        at = self.pods.get(record.uid)
        return at is not None and record.cidr == f"{at.status.pod_ip}/32"

    # the cluster

    def change(self, old: Pod | None, new: Pod | None) -> None:
        self.written += 1
        self.events.append((self.written, old, new))
        for each in (old, new):
            if each is not None:
                self.pods.pop(each.metadata.uid, None)
        if new is not None:
            self.pods[new.metadata.uid] = new
            self.true |= {each.key for each in records_of(new, reason="", at=NOW)}
        elif old is not None:
            self.gone.append(old)

    def store(self, name: str, records: Sequence[Record]) -> None:
        self.written += 1
        self.stored[name] = segment(*records, name=name, version=str(self.written))

    @rule(address=st.sampled_from(ADDRESSES))
    def create(self, address: str) -> None:
        self.made += 1
        self.change(None, pod(f"redis-{self.made}", ip=address))

    @rule(address=st.sampled_from(ADDRESSES), name=st.sampled_from(NAMES))
    def create_and_delete(self, address: str, name: str) -> None:
        """A pod whose whole life is between two looks of the leader."""
        self.create(address)
        [(uid, going)] = [*self.pods.items()][-1:]
        self.admit_one(going, name)
        self.change(self.pods[uid], None)

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def admit(self, data: st.DataObject, name: str) -> None:
        self.admit_one(self.pods[data.draw(st.sampled_from(sorted(self.pods)))], name)

    def admit_one(self, going: Pod, name: str) -> None:
        records = records_of(going, reason="deleted", at=NOW)
        self.reserve(name, records)
        self.admitted |= {each.key for each in records}

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.change(self.pods[data.draw(st.sampled_from(sorted(self.pods)))], None)

    def reserve(self, name: str, records: Sequence[Record]) -> None:
        held, left = append(self.stored[name].records, records, 10_000)
        assert not left
        self.store(name, held)

    # the forger

    @rule(name=st.sampled_from(NAMES), addresses=st.lists(st.sampled_from(ADDRESSES), min_size=1, max_size=2))
    def forge(self, name: str, addresses: list[str]) -> None:
        self.made += 1
        self.reserve(name, [record(f"{each}/32", uid=f"forged-{self.made}", at=NOW) for each in addresses])

    @precondition(lambda self: self.pods or self.gone)
    @rule(data=st.data(), name=st.sampled_from(NAMES), address=st.sampled_from(ADDRESSES))
    def forge_for_a_pod(self, data: st.DataObject, name: str, address: str) -> None:
        known = data.draw(st.sampled_from([*self.pods.values(), *self.gone]))
        self.reserve(name, [record(f"{address}/32", uid=known.metadata.uid, at=NOW)])

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
        self.reconcile()
        for _ in range(3):
            self.watch_pods(len(self.events) + 1)
            self.reconcile()
        assert self.there <= self.true | self.excused, "a forged record stays"
        assert not self.dropped & self.admitted


World.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestWorld = World.TestCase
