"""When an address is released: values in, changes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from api.ip_reservation import FINISHED
from calico.segment import IPReservation, Record
from controllers.ip_reservation import release_planner
from controllers.ip_reservation.release_planner import (
    END_WAITS,
    Cause,
    Change,
    Life,
    Pods,
    admission_of,
)
from settings import IPReservationSettings
from tests.factories import NOW, ago, record, segment
from tests.ip_reservation_world import doubted, settings

RUNNING, TERMINATING, GONE = Life.RUNNING, Life.TERMINATING, Life.GONE
NONE = Pods({}, {})


def plan(
    segments: Sequence[IPReservation], pods: Pods, settings: IPReservationSettings, now: datetime
) -> Sequence[Change]:
    return release_planner.plan(segments, pods, settings, now).changes


LONG_AGO = ago(hours=2)
DUE = {
    "its reserve time is over": (record(at=LONG_AGO, ended=ago(minutes=40)), GONE, Cause.AGE),
    "its reserve time counts from the pod's end": (record(at=LONG_AGO, ended=ago(minutes=39)), GONE, None),
    "its pod was only now seen gone": (record(at=LONG_AGO), GONE, None),
    "its pod is terminating for hours": (record(at=LONG_AGO), TERMINATING, None),
    "its pod may yet go": (record(at=LONG_AGO), RUNNING, None),
    "its end is noted in the future": (record(at=LONG_AGO, ended=ago(hours=-9)), GONE, None),
    "its end was noted too early": (record(at=LONG_AGO, ended=ago(hours=1)), TERMINATING, None),
    "its record was lost and it counts from now": (record(at=ago(hours=9), uid=""), GONE, None),
    "it has no pod and starts in the future": (record(at=ago(hours=-9), uid=""), GONE, None),
}


@pytest.mark.parametrize(("held", "life", "cause"), DUE.values(), ids=DUE)
def test_an_address_is_released_when(held: Record, life: Life, cause: Cause | None) -> None:
    changes = plan([segment(held)], Pods({held.uid: life}, {}), settings(), NOW)

    assert [cause for change in changes for _, cause in change.released] == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("waited", "causes"),
    [pytest.param(120.0, [Cause.GIVEN_BACK], id="long enough"), pytest.param(119.0, [], id="not yet")],
)
@pytest.mark.parametrize("at", [ago(hours=1), ago(hours=-1)], ids=["slow", "fast"])
def test_giving_back_counts_from_when_the_leader_saw_the_record_whatever_the_servers_clock_says(
    at: datetime, waited: float, causes: list[Cause]
) -> None:
    held = record(at=at)
    pods = Pods({held.uid: RUNNING}, {admission_of(held): waited})

    changes = plan([segment(held)], pods, settings(), NOW)

    assert [cause for change in changes for _, cause in change.released] == causes


@pytest.mark.parametrize("level", [0, 3])
def test_a_segment_is_deleted_with_its_last_record(level: int) -> None:
    held = record(ended=ago(hours=1))

    (change,) = plan([segment(held, level=level)], NONE, settings(), NOW)
    assert (change.kept, change.released) == ((), ((held, Cause.AGE),))

    (change,) = plan([segment(level=level)], NONE, settings(), NOW)
    assert change.kept == ()


@pytest.mark.parametrize(
    ("reserve_time", "waits"), [("40m", END_WAITS), ("2m", 3.0)], ids=["a minute", "a share of the time"]
)
def test_an_end_that_is_known_in_memory_is_stored_after(reserve_time: str, waits: float) -> None:
    going, other = record(), record("10.0.0.2/32", uid="b")
    config = settings(duration=reserve_time)

    def stored(seconds: float) -> list[tuple[datetime | None, ...]]:
        pods = Pods({"b": TERMINATING}, {}, {going.key: ago(seconds=seconds)})
        changes = plan([segment(going, other)], pods, config, NOW)
        return [tuple(each.ended for each in change.kept) for change in changes]

    assert stored(waits - 0.1) == []
    assert stored(waits) == [(ago(seconds=waits), None)]


def test_an_end_is_stored_with_any_other_write_and_at_once_when_it_is_known_from_nothing_else() -> None:
    just, over = record(), record("10.0.0.2/32", uid="b", ended=ago(hours=1))
    (change,) = plan([segment(just, over)], Pods({}, {}, {just.key: ago(seconds=1)}), settings(), NOW)
    assert change.kept == (replace(just, ended=ago(seconds=1)),)

    for held in (just, replace(just, ended=ago(minutes=-3))):  # by a leader whose clock was fast
        (change,) = plan([segment(held)], NONE, settings(), NOW)
        assert change.kept == (replace(just, ended=NOW),)


def test_an_end_that_is_only_in_memory_counts_and_releases_nothing_by_age() -> None:
    held = [record(f"10.0.0.{n}/32", uid=f"{n}", at=ago(minutes=9)) for n in range(2)]
    pods = Pods({}, {}, {held[0].key: ago(seconds=2), held[1].key: ago(seconds=1)})

    (change,) = plan([segment(*held)], pods, settings(maxCount=1), NOW)
    assert [(each.cidr, cause) for each, cause in change.released] == [("10.0.0.0/32", Cause.COUNT)]

    long_ago = Pods({}, {}, {held[0].key: ago(hours=1)})
    (change,) = plan([segment(held[0])], long_ago, settings(), NOW)
    assert (change.released, change.kept) == ((), (replace(held[0], ended=ago(hours=1)),))


def test_the_hold_that_began_first_goes_first_however_long_its_pod_took_to_go() -> None:
    stuck = record("10.0.0.1/32", uid="a", at=ago(hours=9), ended=ago(minutes=1))
    quick = record("10.0.0.2/32", uid="b", at=ago(minutes=9), ended=ago(minutes=9))

    (change,) = plan([segment(stuck, quick)], NONE, settings(maxCount=1), NOW)

    assert change.kept == (stuck,)


def test_an_address_that_stands_in_two_segments_counts_once_and_goes_from_both() -> None:
    twice = record(at=ago(minutes=9), ended=ago(minutes=8))
    before = record(uid="z", at=ago(minutes=9), ended=ago(minutes=8))
    young = record("10.0.0.2/32", uid="b", at=ago(minutes=1), ended=ago(minutes=1))
    segments = [segment(before, name="a"), segment(twice, young, name="b")]

    assert plan(segments, NONE, settings(maxCount=2), NOW) == []
    released = [
        each.cidr for change in plan(segments, NONE, settings(maxCount=1), NOW) for each, _ in change.released
    ]

    assert released == [twice.cidr, twice.cidr]


@pytest.mark.parametrize(
    ("first", "second", "stays", "while_it_runs"),
    [
        pytest.param(record(), record(at=ago(minutes=4)), "b", "b", id="asked for later"),
        pytest.param(
            record(asked=ago(minutes=1)), record(at=ago(minutes=4)), "b", "ab", id="asked for again"
        ),
        pytest.param(record(), record(at=ago(minutes=4), late=True), "a", "ab", id="reserved late, too"),
        pytest.param(record(), record(), "b", "b", id="the same"),
        pytest.param(
            record(ended=ago(minutes=1), late=True), record(at=NOW), "b", "b", id="noted as ended, and late"
        ),
        pytest.param(record(ended=ago(minutes=2)), record(ended=ago(minutes=1)), "b", "b", id="ended twice"),
    ],
)
@pytest.mark.parametrize("life", [TERMINATING, GONE, RUNNING])
def test_one_record_stays_of_those_of_one_pod_that_goes(
    first: Record, second: Record, stays: str, while_it_runs: str, life: Life
) -> None:
    kept = {"a": segment(first, name="a"), "b": segment(second, name="b")}
    pods = Pods({first.uid: life}, {})
    ends = [each.ended for each in (first, second) if each.ended]

    for _ in range(3):
        changes = plan([*kept.values()], pods, settings(), NOW)
        assert not any(change.released for change in changes)
        kept |= {
            change.segment.metadata.name: segment(*change.kept, name=change.segment.metadata.name)
            for change in changes
        }

    assert "".join(name for name, each in kept.items() if each.records) == (
        while_it_runs if life is RUNNING else stays
    )
    (held,) = {record.ended for each in kept.values() for record in each.records}
    assert held == (min(ends, default=NOW) if life is GONE else None)


def test_a_deletion_that_was_requested_again_gives_nothing_back_of_any_copy() -> None:
    before, again = record(asked=ago(minutes=3)), record(at=ago(seconds=1))
    copies = [segment(before, name="b", level=1), segment(again, name="a")]
    waits = {admission_of(before): 600.0, admission_of(again): 1.0}

    assert plan(copies, Pods({before.uid: RUNNING}, waits), settings(), NOW) == []

    waits[admission_of(again)] = 120.0
    first, second = plan(copies, Pods({before.uid: RUNNING}, waits), settings(), NOW)
    assert [(each.segment.metadata.name, each.kept) for each in (first, second)] == [("a", ()), ("b", ())]
    assert (first.released, [cause for _, cause in second.released]) == ((), [Cause.GIVEN_BACK])


def test_a_copy_that_a_user_wants_released_stays_until_that_is_done() -> None:
    named, copy = segment(record(), name="a", release="10.0.0.1"), segment(record(), name="b", level=1)

    assert plan([named, copy], Pods({record().uid: TERMINATING}, {}), settings(), NOW) == []

    first, second = plan([named, copy], NONE, settings(), NOW)
    assert (first.kept, second.kept) == ((), ())
    assert [cause for _, cause in second.released] == [Cause.BY_HAND]


moments = st.integers(-600, 6000).map(lambda seconds: ago(seconds=seconds))


def some(
    uids: Sequence[str], ended: st.SearchStrategy[datetime | None], reasons: Sequence[str] = ("deleted",)
) -> st.SearchStrategy[list[Record]]:
    """The records of a segment."""
    each = st.builds(
        record,
        cidr=st.integers(1, 9).map(lambda n: f"10.0.0.{n}/32"),
        uid=st.sampled_from(uids),
        at=moments,
        asked=st.none() | moments,
        ended=ended,
        reason=st.sampled_from(reasons),
    )
    return st.lists(each, max_size=8, unique_by=lambda record: record.key)


worlds = st.lists(some(["", "a", "b", "c"], st.none() | moments, ("deleted", FINISHED)), max_size=4)
lives = st.fixed_dictionaries({}, optional={uid: st.sampled_from(Life) for uid in "abc"})


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[IPReservation], Pods]:
    segments = [
        segment(*held, name=f"s{n}", level=draw(st.integers(0, 1))) for n, held in enumerate(draw(worlds))
    ]
    askings = {admission_of(each) for one in segments for each in one.records}
    waits = {asking: draw(st.sampled_from([0.0, 119.0, 120.0])) for asking in sorted(askings)}
    finished = draw(st.frozensets(st.sampled_from("abc")))
    return segments, Pods(draw(lives), waits, finished=finished)


@given(situations(), st.integers(1, 10))
def test_rounds_on_their_own_outcomes_soon_change_nothing(
    situation: tuple[list[IPReservation], Pods], count: int
) -> None:
    """What a copy says is written into a greater one first, and what was asked later than that is over then."""
    outcome, pods = situation
    config = settings(maxCount=count)
    for _ in range(3):
        outcome = after_a_round(outcome, pods, config)

    assert plan(outcome, pods, config, NOW) == []


def after_a_round(
    segments: list[IPReservation], pods: Pods, config: IPReservationSettings
) -> list[IPReservation]:
    changes = {change.segment.metadata.name: change for change in plan(segments, pods, config, NOW)}
    return [
        written(each, changes[name].kept if (name := each.metadata.name) in changes else each.records)
        for each in segments
        if each.metadata.name not in changes or changes[each.metadata.name].kept
    ]


def written(held: IPReservation, records: Sequence[Record]) -> IPReservation:
    return replace(
        segment(*records), metadata=replace(held.metadata, annotations=segment(*records).metadata.annotations)
    )


@given(situations(), st.integers(1, 10))
def test_every_record_is_kept_or_released_and_none_early(
    situation: tuple[list[IPReservation], Pods], count: int
) -> None:
    segments, pods = situation
    changes = plan(segments, pods, settings(maxCount=count), NOW)
    changed = {change.segment.metadata.name for change in changes}
    left = [each for one in segments if one.metadata.name not in changed for each in one.records]
    left += [each for change in changes for each in change.kept]
    left += [each for change in changes for each, _ in change.released]
    assert {each.key for each in left} == {each.key for one in segments for each in one.records}
    for change in changes:
        for each, cause in change.released:
            life = pods.life_of(each)
            assert (life is RUNNING) == (cause is Cause.GIVEN_BACK)
            assert life is not TERMINATING


def test_an_entry_that_a_hand_broke_is_written_away() -> None:
    held = record(ended=ago(minutes=1))

    (change,) = plan([segment(held, entries=["10.0.0.1-9"])], NONE, settings(), NOW)

    assert (change.kept, change.released) == ((held,), ())


# Forged records displace none, and prolong nothing


def test_a_foreign_address_for_a_running_pod_is_not_given_back_but_dropped() -> None:
    forged = record("10.0.0.9/32")
    waits = {(forged.cidr, forged.uid, forged.at): 600.0}

    waiting = Pods({forged.uid: Life.RUNNING}, waits, **doubted(unconfirmed=[forged]))
    assert plan([segment(forged)], waiting, settings(maxCount=3), NOW) == []

    (change,) = plan(
        [segment(forged)], dataclasses.replace(waiting, **doubted(forged)), settings(maxCount=3), NOW
    )
    assert change.released == ((forged, Cause.FORGED),)


def test_a_forged_repetition_prolongs_nothing() -> None:
    true, again = segment(record(ended=ago(minutes=39)), name="a"), segment(record(at=NOW), name="b")

    (change,) = plan([true, again], NONE, settings(maxCount=3), NOW)
    # The copy with the end stays until the other one has it: a leader that is killed, or a conflict, loses no end.
    assert change.segment.metadata.name == "b"
    assert (change.kept, change.released) == ((record(at=NOW, ended=ago(minutes=39)),), ())

    (change,) = plan([true, segment(*change.kept, name="b")], NONE, settings(maxCount=3), NOW)
    assert (change.segment.metadata.name, change.kept, change.released) == ("a", (), ())


@given(
    st.lists(some(["", "a", "b", "c"], st.none() | moments), min_size=1, max_size=3),
    st.lists(some(["x", "y", "a-foreign"], st.none()), min_size=3, max_size=3),
    st.fixed_dictionaries({}, optional={uid: st.sampled_from(Life) for uid in "abcx"}),
    st.integers(1, 5),
    st.booleans(),
)
def test_nothing_confirmed_is_decided_otherwise_for_what_is_forged(
    true: list[list[Record]], forged: list[list[Record]], lives: dict[str, Life], count: int, passed: bool
) -> None:
    all_forged = [each for one in forged for each in one]
    pods = Pods(lives, {}, **(doubted(*all_forged) if passed else doubted(unconfirmed=all_forged)))
    names = [f"s{n}" for n in range(len(true))]
    alone = [segment(*held, name=name) for name, held in zip(names, true, strict=True)]
    mixed = [segment(*held, *more, name=name) for name, held, more in zip(names, true, forged, strict=False)]

    without = outcome(alone, Pods(lives, {}), count)
    among = outcome(mixed, pods, count)

    for name in names:
        kept, released = among[name]
        left = [each for each in kept if each not in all_forged]
        assert (left, [each for each in released if each[1] is not Cause.FORGED]) == without[name]
        assert bool(set(all_forged) & set(kept)) <= (not passed)


def outcome(
    segments: Sequence[IPReservation], pods: Pods, count: int
) -> dict[str, tuple[list[Record], list[tuple[Record, Cause]]]]:
    changes = {
        each.segment.metadata.name: each for each in plan(segments, pods, settings(maxCount=count), NOW)
    }
    unchanged = {each.metadata.name: (list(each.records), []) for each in segments}
    return unchanged | {name: (list(each.kept), list(each.released)) for name, each in changes.items()}
