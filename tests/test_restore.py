"""What another hand takes out of a segment is reserved again, what the leader released is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY

from calico.errors import NotReserved
from calico.segment import RECORDS, IPReservation, Record
from controllers.ip_reservation.held import held_in
from controllers.ip_reservation.restore import LATEST_SIGHT, OwnReleases, Restore, taken_out
from settings import IPReservationSettings
from tests.factories import NOW, ago, record, segment
from tests.fakes import FakeClock, FakeRecorder, FakeReservations, FakeStore

SETTINGS = IPReservationSettings.model_validate({"ipReserveTime": "40m"})
TERMINATING = record()
HELD = record("10.0.0.2/32", uid="b", pod="redis-1", ended=ago(minutes=39))
OVER = record("10.0.0.3/32", uid="c", pod="redis-2", ended=ago(minutes=40))
NO_POD = record("10.0.0.4/32", uid="", pod="")
ALL = (TERMINATING, HELD, OVER, NO_POD)


class Queue:
    def __init__(self) -> None:
        self.keys: list[str] = []

    def add(self, key: str) -> None:
        self.keys.append(key)


class World:
    """A segment with ALL, as the leader's watch shows it, and the ledger of the leader."""

    def __init__(self) -> None:
        self.now: datetime = NOW
        self.clock, self.queue, self.recorder = FakeClock(), Queue(), FakeRecorder()
        self.reservations = FakeReservations()
        self.reservations.put(segment(*ALL))
        self.own = OwnReleases(self.clock)
        self.refusal: Exception | None = None
        self.made = 0
        self.subject = Restore(
            self.queue,  # type: ignore[arg-type]
            segments=FakeStore(lambda: self.reservations.objects.values(), held=held_in),  # type: ignore[arg-type]
            reservations=self.reservations,  # type: ignore[arg-type]
            ledger=self,  # type: ignore[arg-type]
            own=self.own,
            settings=lambda: SETTINGS,
            recorder=self.recorder,  # type: ignore[arg-type]
            now=lambda: self.now,
            clock=self.clock,
        )

    def reserve(self, records: Sequence[Record], deadline: float) -> IPReservation:
        if self.refusal:
            raise self.refusal
        self.made += 1
        return self.reservations.create(f"leader-{self.made}", records)

    def change(self, new: IPReservation | None) -> None:
        """Put *new* in the place of the segment, as the watch shows it."""
        old = self.reservations.objects.pop("drawbridge-a")
        if new is not None:
            self.reservations.put(new)
        self.subject.observe(old, new)

    def settle(self) -> None:
        while self.queue.keys:
            self.subject.reconcile(self.queue.keys.pop())

    def change_and_settle_twice(self, new: IPReservation | None) -> None:
        self.change(new)
        self.settle()
        self.queue.add("drawbridge-a")
        self.settle()

    @property
    def records(self) -> list[Record]:
        found = [each for held in self.reservations.list() for each in held.records]
        return sorted(found, key=lambda each: each.cidr)


def garbled() -> IPReservation:
    whole = segment(*ALL)
    return replace(whole, metadata=replace(whole.metadata, annotations={RECORDS: "[{"}))


@pytest.mark.parametrize(
    "hand",
    [
        pytest.param(lambda: None, id="deletes it"),
        pytest.param(lambda: segment(), id="empties it"),
        pytest.param(lambda: segment(NO_POD), id="takes most of it"),
    ],
)
def test_what_is_taken_out_is_reserved_again_as_it_was(hand: Callable[[], IPReservation | None]) -> None:
    before = REGISTRY.get_sample_value("drawbridge_restored_reservations_total") or 0
    world = World()

    world.change_and_settle_twice(hand())

    assert [each for each in world.records if each.uid] == [TERMINATING, HELD]
    assert world.recorder.reasons == ["IPReservationRestored"]
    assert "IPReservation drawbridge-a by another hand" in world.recorder.events[0][1]
    assert REGISTRY.get_sample_value("drawbridge_restored_reservations_total") == before + 2


def test_the_record_of_a_garbled_annotation_is_kept_elsewhere() -> None:
    world = World()

    world.change_and_settle_twice(garbled())

    assert [each for each in world.records if each.uid] == [TERMINATING, HELD]


def test_what_the_leader_released_stays_released() -> None:
    world = World()
    world.own.note(segment(), [TERMINATING])

    world.change_and_settle_twice(segment(NO_POD))

    assert [each for each in world.records if each.uid] == [HELD]


def test_what_the_leader_released_from_another_segment_is_reserved_again() -> None:
    world = World()
    world.own.note(segment(name="drawbridge-b"), [TERMINATING, HELD])

    world.change_and_settle_twice(None)

    assert world.records == [TERMINATING, HELD]


def test_releases_are_remembered_for_as_long_as_the_watch_may_lag() -> None:
    clock = FakeClock()
    own, key = OwnReleases(clock), ("drawbridge-a", "10.0.0.1/32 uid-redis-0")
    own.note(segment(), [TERMINATING])
    clock.advance(LATEST_SIGHT - 1)
    own.note(segment(), [HELD])
    assert key in own
    clock.advance(1)
    own.note(segment(), [])
    assert key not in own
    assert ("drawbridge-a", "10.0.0.2/32 b") in own


def test_what_another_segment_holds_is_not_reserved_again() -> None:
    world = World()
    world.reservations.put(segment(TERMINATING, HELD, name="drawbridge-b"))

    world.change_and_settle_twice(None)

    assert sorted(world.reservations.objects) == ["drawbridge-b"]
    assert world.recorder.reasons == []


def test_an_address_that_another_pod_has_had_since_is_not_the_first_pods_any_more() -> None:
    later = record(uid="d", pod="redis-9")
    world = World()

    world.change_and_settle_twice(segment(later, HELD))

    assert world.records == [later, HELD]
    assert taken_out(segment(TERMINATING), segment(later)) == []


def test_segments_of_others_are_of_no_concern() -> None:
    world = World()
    world.subject.observe(segment(TERMINATING, ours=False), None)
    world.subject.observe(None, segment(TERMINATING))

    assert world.queue.keys == []


def test_what_could_not_be_written_is_tried_again_with_what_was_taken_since() -> None:
    world = World()
    world.refusal = NotReserved("the API server is away")
    world.change(segment(HELD))
    with pytest.raises(NotReserved):
        world.settle()
    world.refusal = None
    world.change(None)

    world.settle()

    assert world.records == [TERMINATING, HELD]


def test_what_is_taken_while_it_writes_is_reserved_again_too() -> None:
    world = World()
    reserve = world.reserve

    def meanwhile(records: Sequence[Record], deadline: float) -> IPReservation:
        world.reserve = reserve  # type: ignore[method-assign]
        made = reserve(records, deadline)
        world.change(None)
        return made

    world.reserve = meanwhile  # type: ignore[method-assign]
    world.change(segment(HELD))
    world.settle()

    assert world.records == [TERMINATING, HELD]
