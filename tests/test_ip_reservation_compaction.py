"""Many small segments become few large ones, when that is worth it, and nothing is ever in neither."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from calico.segment import ENTRIES, IPReservation
from controllers.ip_reservation.release_planner import FEW, MANY, Life, Plan, Pods, is_small, plan
from controllers.ip_reservation.snapshot import QUIET
from settings import IPReservationSettings
from tests.factories import NOW, ago, numbered, segment
from tests.ip_reservation_world import World
from tests.metrics import sample
from tests.tables import table

CONFIG = IPReservationSettings.model_validate({"maxCount": 100_000})


def batches(count: int, size: int = 2, **fields: Any) -> list[IPReservation]:
    return [
        segment(*(numbered(size * n + k, **fields) for k in range(size)), name=f"batch-{n:03}")
        for n in range(count)
    ]


def terminating(segments: Sequence[IPReservation]) -> Pods:
    return Pods({record.uid: Life.TERMINATING for each in segments for record in each.records}, {})


def planned(segments: Sequence[IPReservation], *, quiet: bool = True) -> Plan:
    return plan(segments, terminating(segments), CONFIG, NOW, enough=FEW if quiet else MANY)


@pytest.mark.parametrize(
    ("count", "quiet", "expected"),
    [
        pytest.param(FEW - 1, True, 0, id="few"),
        pytest.param(FEW, True, 1, id="enough when no new ones come"),
        pytest.param(MANY - 1, False, 0, id="a storm"),
        pytest.param(MANY, False, 1, id="too many in a storm"),
    ],
)
def test_small_segments_are_compacted_when_there_are(count: int, quiet: bool, expected: int) -> None:
    segments = batches(count)

    found = planned(segments, quiet=quiet)

    assert (len(found.compactions), found.changes) == (expected, [])
    for each in found.compactions:
        assert each.records == tuple(record for held in segments for record in held.records)
        assert (each.level, each.sources) == (1, {held.metadata.name for held in segments})


def test_a_compacted_segment_is_compacted_again_when_it_is_half_empty() -> None:
    half = [numbered(1000 + n) for n in range(ENTRIES // 2)]
    small, large = (
        segment(*half, name="small", level=3),
        segment(*half, numbered(ENTRIES), name="large", level=3),
    )

    assert (is_small(small), is_small(large)) == (True, False)
    (made,) = planned([small, *batches(FEW - 1)]).compactions
    assert made.level == 4


def test_the_records_of_many_segments_go_into_as_few_as_the_limits_allow() -> None:
    segments = batches(ENTRIES // 2 + 1)

    assert [len(each.records) for each in planned(segments).compactions] == [ENTRIES, 2]


@table(
    "edit",
    {
        "an order to release": {"release": "10.9.9.9"},
        "junk": {"entries": ["10.0.0.1-9"]},
        "an address without record": {"entries": ["10.9.9.9/32"]},
    },
)
def test_a_segment_is_left_out_that_users_have_edited(edit: dict[str, Any]) -> None:
    first, *others = batches(FEW + 1)
    edited = segment(*first.records, name=first.metadata.name, **edit)

    (made,) = planned([edited, *others]).compactions

    assert made.sources == {each.metadata.name for each in others}
    assert planned([edited, *others[1:]]).compactions == ()


def test_ends_are_stored_by_the_compaction_and_not_in_its_sources() -> None:
    segments = batches(FEW)
    pods = Pods({}, {}, {each.key: ago(minutes=2) for held in segments for each in held.records})

    found = plan(segments, pods, CONFIG, NOW, enough=FEW)

    (made,) = found.compactions
    assert (found.changes, {each.ended for each in made.records}) == ([], {ago(minutes=2)})
    left = plan(segments, pods, CONFIG, NOW, enough=None)
    assert ([each.segment for each in left.changes], left.compactions) == (segments, ()), "when it failed"


def test_all_that_copies_say_is_in_the_compacted_segment() -> None:
    """A pod that still runs: none of its copies is needless before."""
    first, *others = batches(FEW)
    again = segment(replace(first.records[0], at=NOW), name="again", level=0)
    before = segment(replace(first.records[0], asked=ago(seconds=1)), name="zzz")
    segments = [first, *others, again, before]
    pods = Pods({each.uid: Life.RUNNING for held in segments for each in held.records}, {})

    found = plan(segments, pods, CONFIG, NOW, enough=FEW)
    made = {each.key: each for one in found.compactions for each in one.records}

    assert made[first.records[0].key] == replace(first.records[0], asked=NOW)


def test_nothing_that_is_over_is_compacted() -> None:
    over, *others = batches(FEW + 1)
    over = segment(*(replace(each, ended=ago(hours=1)) for each in over.records), name="over")
    pods = terminating(others)

    found = plan([over, *others], pods, CONFIG, NOW, enough=FEW)

    assert [(each.segment, each.kept) for each in found.changes] == [(over, ())]
    assert [each.sources for each in found.compactions] == [{each.metadata.name for each in others}]


@pytest.mark.parametrize("size", [4, 40])
def test_ten_thousand_reservations_are_at_most_sixty_four_objects_at_rest(size: int) -> None:
    segments, made = batches(10_000 // size, size), 0
    while (found := planned(segments)).changes or found.compactions:
        gone = {each.segment.metadata.name for each in found.changes if not each.kept}
        segments = [each for each in segments if each.metadata.name not in gone]
        for each in found.compactions:
            made += 1
            segments.append(segment(*each.records, name=f"compacted-{made:03}", level=each.level))

    assert {each.key for held in segments for each in held.records} == {
        numbered(n).key for n in range(10_000 // size * size)
    }
    assert len(segments) <= 64


# The leader does it


def test_the_leader_compacts_when_no_segment_came_for_a_while_and_deletes_the_sources_at_once() -> None:
    world, before = World(*batches(FEW)), sample("drawbridge_reservation_compactions_total")
    reconciler = world.releasing()
    reconciler.reconcile("")
    world.advance(seconds=QUIET - 1)
    world.reservations.put(segment(numbered(999), name="batch-999"))
    reconciler.reconcile("")
    world.advance(seconds=QUIET - 1)
    reconciler.reconcile("")
    assert len(world.reservations.objects) == FEW + 1

    world.advance(seconds=1)
    held = world.reservations.held
    assert reconciler.reconcile("") == 0.0
    assert len(world.reservations.objects) == FEW + 2
    assert reconciler.reconcile("") == world.settings.release_period

    (name,) = world.reservations.objects
    assert name.startswith("drawbridge-compacted-")
    assert world.reservations.held == held
    assert sample("drawbridge_reservation_compactions_total") == before + 1
