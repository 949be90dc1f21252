"""What another client takes out of a segment is reserved again, what the leader released is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import pytest
from msgspec.structs import replace

from api.standing import STANDING
from calico.ledger import round_trip
from calico.segment import ENTRIES, RECORDS, IPReservation, NotReserved, Record
from controllers.ip_reservation.late_reservations import REMEMBERED, taken_out
from tests import ip_reservation_world
from tests.factories import NOW, ago, numbered, pod, record, segment
from tests.metrics import sample

TERMINATING = record()
HELD = record("10.0.0.2/32", uid="b", pod="redis-1", ended=ago(minutes=39))
OVER = record("10.0.0.3/32", uid="c", pod="redis-2", ended=ago(minutes=40))
NO_POD = record("10.0.0.4/32", uid="", pod="")
ALL = (TERMINATING, HELD, OVER, NO_POD)


class World(ip_reservation_world.World):
    """A segment with ALL, as the leader's watch shows it."""

    def __init__(self) -> None:
        super().__init__(segment(*ALL))
        self.refusal: Exception | None = None
        self.meanwhile: Callable[[], None] = lambda: None

    def reserve(self, records: Sequence[Record]) -> IPReservation:
        if self.refusal:
            raise self.refusal
        made = super().reserve(records)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return made

    def change(self, new: IPReservation | None) -> None:
        """Put *new* in the place of the segment, as the watch shows it."""
        old = self.reservations.objects.pop("drawbridge-a")
        if new is not None:
            self.reservations.put(new)
        self.enqueue(*self.restore.observe(old, new))

    def change_and_settle_twice(self, new: IPReservation | None) -> None:
        self.change(new)
        self.settle(self.restore)
        self.enqueue("drawbridge-a")
        self.settle(self.restore)

    @property
    def records(self) -> list[Record]:
        return sorted(self.reservations.records, key=lambda each: each.cidr)


def garbled() -> IPReservation:
    whole = segment(*ALL)
    return replace(whole, metadata=replace(whole.metadata, annotations={RECORDS: "[{"}))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda: None, id="deletes it"),
        pytest.param(lambda: segment(), id="empties it"),
        pytest.param(lambda: segment(NO_POD), id="takes most of it"),
        pytest.param(garbled, id="garbles what it says"),
    ],
)
def test_what_is_taken_out_is_reserved_again_as_it_was(change: Callable[[], IPReservation | None]) -> None:
    before = sample("drawbridge_restored_reservations_total")
    world = World()

    world.change_and_settle_twice(change())

    assert [each for each in world.records if each.uid] == [TERMINATING, HELD]
    assert world.recorder.reasons == ["IPReservationRestored"]
    assert "out of IPReservation drawbridge-a;" in world.recorder.events[0][1]
    assert sample("drawbridge_restored_reservations_total") == before + 2


def test_releases_are_remembered_for_as_long_as_the_watch_may_lag() -> None:
    world = World()
    world.restore.note_own("drawbridge-a", [TERMINATING])
    world.seconds.advance(REMEMBERED - 1)
    world.restore.note_own("drawbridge-a", [HELD])
    world.restore.observe(segment(TERMINATING), None)
    assert world.restore.taken("drawbridge-a") == {}
    world.seconds.advance(1)
    world.restore.note_own("drawbridge-a", [])
    world.restore.observe(segment(TERMINATING, HELD), None)
    assert list(world.restore.taken("drawbridge-a").values()) == [TERMINATING]


LATER = record(uid="d", pod="redis-9")


@pytest.mark.parametrize(
    ("noted", "elsewhere", "new", "expected"),
    [
        pytest.param("drawbridge-a", [], segment(NO_POD), [HELD], id="the leader released"),
        pytest.param("drawbridge-b", [], None, [TERMINATING, HELD], id="it released from another segment"),
        pytest.param("", [TERMINATING, HELD], None, [TERMINATING, HELD], id="another segment holds"),
        pytest.param(
            "", [], segment(LATER, HELD), [LATER, TERMINATING, HELD], id="another pod's record takes over"
        ),
    ],
)
def test_what_is_reserved_of_a_segment_that_changes_when(
    noted: str, elsewhere: Sequence[Record], new: IPReservation | None, expected: Sequence[Record]
) -> None:
    world = World()
    world.restore.note_own(noted, [TERMINATING])
    if elsewhere:
        world.reservations.put(segment(*elsewhere, name="drawbridge-b"))

    world.change_and_settle_twice(new)

    assert [each for each in world.records if each.uid] == expected
    assert bool(world.recorder.reasons) is not bool(elsewhere)


@pytest.mark.parametrize("first", ["compacted", "drawbridge-a"])
def test_a_copy_that_the_leader_drops_is_reserved_again_when_the_one_that_was_to_stay_is_deleted(
    first: str,
) -> None:
    """As by `kubectl delete --all`, in any order, while small segments are compacted."""
    world = ip_reservation_world.World(segment(HELD), segment(HELD, name="compacted", level=1))
    stored = dict(world.reservations.objects)

    def deleted(name: str) -> None:
        world.reservations.objects.pop(name, None)
        world.enqueue(*world.restore.observe(stored[name], None))
        world.settle(world.restore)

    def meanwhile(verb: str, name: str) -> None:
        if (verb, name) == ("delete", "drawbridge-a"):
            world.reservations.before = lambda verb, name: None
            deleted(first)

    world.reservations.before = meanwhile
    world.releasing().reconcile("segments")
    for name in stored.keys() - {first}:
        deleted(name)

    assert list(world.reservations.records) == [HELD]


def test_what_the_leader_releases_from_all_of_its_copies_is_not_reserved_again() -> None:
    over = replace(OVER, uid="d")
    world = ip_reservation_world.World(segment(over), segment(over, name="compacted", level=1))
    stored = dict(world.reservations.objects)

    world.releasing().reconcile("segments")
    world.settings = world.settings.model_copy(update={"duration": 36000.0})
    for each in stored.values():
        world.enqueue(*world.restore.observe(each, None))
    world.settle(world.restore)

    assert world.reservations.held == []


@pytest.mark.parametrize(
    ("has", "ended", "expected"),
    [
        pytest.param("10.0.0.1", None, [], id="that its pod has: it is reserved ahead again"),
        pytest.param("10.0.0.9", None, ["10.0.0.1/32"], id="that its pod has left"),
        pytest.param("10.0.0.9", ago(minutes=5), ["10.0.0.1/32"], id="that its pod left before"),
        pytest.param("10.0.0.1", ago(minutes=5), ["10.0.0.1/32"], id="that Calico has released"),
    ],
)
def test_of_an_address_that_was_reserved_ahead(
    has: str, ended: datetime | None, expected: Sequence[str]
) -> None:
    world = ip_reservation_world.World(pods=[pod(ip=has)])
    world.enqueue(*world.restore.observe(segment(record(reason=STANDING, ended=ended)), None))
    world.settle(world.restore)

    assert world.reservations.held == expected


def test_what_stays_is_not_taken_out() -> None:
    assert taken_out(segment(TERMINATING), segment(TERMINATING, LATER)) == []


def test_what_doctor_and_helm_test_reserve_for_a_moment_is_not_reserved_again() -> None:
    world, seen = ip_reservation_world.World(), list[IPReservation]()
    world.reservations.before = lambda verb, name: seen.extend(world.reservations.objects.values())
    assert round_trip(world.reservations, "doctor", "drawbridge", NOW, 5.0) == ""
    (trial,) = seen

    world.enqueue(*world.restore.observe(trial, None))
    world.settle(world.restore)

    assert (world.reservations.held, world.recorder.reasons) == ([], [])


def test_segments_of_others_are_of_no_concern() -> None:
    world = World()

    assert not world.restore.observe(segment(TERMINATING, ours=False), None)
    assert not world.restore.observe(None, segment(TERMINATING))


def test_what_could_not_be_written_is_tried_again_with_what_was_taken_since() -> None:
    world = World()
    world.refusal = NotReserved("the API server is away")
    world.change(segment(HELD))
    with pytest.raises(NotReserved):
        world.settle(world.restore)
    world.refusal = None
    world.change(None)

    world.settle(world.restore)

    assert world.records == [TERMINATING, HELD]


def test_what_is_taken_while_it_writes_is_reserved_again_too() -> None:
    world = World()
    world.meanwhile = lambda: world.change(None)
    world.change(segment(HELD))
    world.settle(world.restore)

    assert world.records == [TERMINATING, HELD]


def test_more_than_one_segment_takes_is_reserved_again_in_several() -> None:
    world, many = World(), [numbered(256 + n) for n in range(ENTRIES + 1)]
    world.change(None)
    world.enqueue(*world.restore.observe(segment(*many), None))
    world.settle(world.restore)

    assert {each.cidr for each in world.records} == {each.cidr for each in (TERMINATING, HELD, *many)}
    assert max(len(each.records) for each in world.reservations.list()) == ENTRIES
