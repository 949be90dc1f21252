"""When an address is released: values in, changes out."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from calico.segment import Record
from controllers.ip_reservation.release import Cause, Life, life_of, note_end, plan
from settings import IPReservationSettings
from tests.factories import NOW, ago, pod, record, segment

RUNNING, TERMINATING, GONE = Life.RUNNING, Life.TERMINATING, Life.GONE


def settings(**values: Any) -> IPReservationSettings:
    return IPReservationSettings.model_validate(
        {"ipReserveTime": "40m", "ipReserveMaxCount": 300, "giveBackAfter": "2m"} | values
    )


@pytest.mark.parametrize(
    ("held", "life", "cause"),
    [
        pytest.param(record(at=ago(hours=2), ended=ago(minutes=40)), GONE, Cause.AGE, id="its hold is over"),
        pytest.param(
            record(at=ago(hours=2), ended=ago(minutes=39)),
            GONE,
            None,
            id="its hold counts from the pod's end",
        ),
        pytest.param(record(at=ago(hours=2)), GONE, None, id="its pod was only now seen gone"),
        pytest.param(record(at=ago(hours=2)), TERMINATING, None, id="its pod is terminating for hours"),
        pytest.param(record(at=ago(minutes=2)), RUNNING, Cause.GIVEN_BACK, id="its pod lives on"),
        pytest.param(record(at=ago(minutes=1)), RUNNING, None, id="its pod may yet go"),
        pytest.param(
            record(at=ago(hours=1), asked=ago(minutes=1)), RUNNING, None, id="its pod was asked to go again"
        ),
        pytest.param(
            record(at=ago(hours=1), ended=ago(hours=-9)), GONE, None, id="its end is noted in the future"
        ),
        pytest.param(
            record(at=ago(hours=1), ended=ago(hours=1)), TERMINATING, None, id="its end was noted too early"
        ),
        pytest.param(
            record(at=ago(hours=9), uid=""), GONE, None, id="its record was lost and it counts from now"
        ),
        pytest.param(
            record(at=ago(hours=-9), uid=""), GONE, None, id="it has no pod and starts in the future"
        ),
    ],
)
def test_an_address_is_released_when(held: Record, life: Life, cause: Cause | None) -> None:
    changes = plan([segment(held)], {held.uid: life}, settings(), NOW)

    assert [cause for change in changes for _, cause in change.released] == ([cause] if cause else [])


@pytest.mark.parametrize(
    ("held", "life", "ended"),
    [
        (record(), GONE, NOW),
        (record(), RUNNING, None),
        (record(ended=ago(minutes=3)), GONE, ago(minutes=3)),
        (record(ended=ago(minutes=3)), RUNNING, None),
        (record(ended=ago(minutes=-3)), GONE, NOW),
        (record(uid="", at=ago(hours=1)), GONE, NOW),
    ],
)
def test_the_end_of_a_pod_is_noted(held: Record, life: Life, ended: datetime | None) -> None:
    assert note_end(held, life, NOW).ended == ended


def test_the_oldest_go_first_when_too_many_are_held() -> None:
    held = [
        record(f"10.0.0.{n}/32", uid=f"{n}", at=ago(minutes=n), ended=ago(minutes=1)) for n in range(1, 6)
    ]

    (change,) = plan([segment(*held)], {}, settings(ipReserveMaxCount=3), NOW)

    assert [(each.cidr, cause) for each, cause in change.released] == [
        ("10.0.0.4/32", Cause.COUNT),
        ("10.0.0.5/32", Cause.COUNT),
    ]


def test_the_hold_that_began_first_goes_first_however_long_its_pod_took_to_go() -> None:
    stuck = record("10.0.0.1/32", uid="a", at=ago(hours=9), ended=ago(minutes=1))
    quick = record("10.0.0.2/32", uid="b", at=ago(minutes=9), ended=ago(minutes=9))

    (change,) = plan([segment(stuck, quick)], {}, settings(ipReserveMaxCount=1), NOW)

    assert change.kept == (stuck,)


def test_an_address_that_its_pod_still_has_does_not_count() -> None:
    going = [record(f"10.0.0.{n}/32", uid=f"{n}", at=ago(minutes=9)) for n in range(5)]
    gone = record("10.0.1.1/32", uid="gone", at=ago(minutes=1), ended=ago(minutes=1))

    changes = plan(
        [segment(*going, gone)], {each.uid: TERMINATING for each in going}, settings(ipReserveMaxCount=1), NOW
    )

    assert changes == []


def test_an_address_that_stands_in_two_segments_counts_once_and_goes_from_both() -> None:
    twice = record(at=ago(minutes=9), ended=ago(minutes=8))
    young = record("10.0.0.2/32", uid="b", at=ago(minutes=1), ended=ago(minutes=1))
    segments = [segment(twice, name="a"), segment(twice, young, name="b")]

    assert plan(segments, {}, settings(ipReserveMaxCount=2), NOW) == []
    released = [
        each.cidr
        for change in plan(segments, {}, settings(ipReserveMaxCount=1), NOW)
        for each, _ in change.released
    ]

    assert released == [twice.cidr, twice.cidr]


def test_an_empty_segment_is_deleted() -> None:
    (change,) = plan([segment()], {}, settings(), NOW)

    assert change.kept == ()


records = st.builds(
    record,
    cidr=st.integers(1, 20).map(lambda n: f"10.0.0.{n}/32"),
    uid=st.sampled_from(["", "a", "b", "c"]),
    at=st.integers(-600, 6000).map(lambda seconds: ago(seconds=seconds)),
    asked=st.none() | st.integers(-600, 6000).map(lambda seconds: ago(seconds=seconds)),
    ended=st.none() | st.integers(-600, 6000).map(lambda seconds: ago(seconds=seconds)),
)
worlds = st.lists(st.lists(records, max_size=8, unique_by=lambda each: each.cidr), max_size=4)
lives = st.fixed_dictionaries({}, optional={uid: st.sampled_from(Life) for uid in "abc"})


@given(worlds, lives, st.integers(1, 10))
def test_a_second_round_on_its_own_outcome_changes_nothing(
    world: list[list[Record]], lives: dict[str, Life], count: int
) -> None:
    segments = [segment(*held, name=f"s{n}") for n, held in enumerate(world)]
    config = settings(ipReserveMaxCount=count)
    outcome = {each.metadata.name: each.records for each in segments}
    outcome |= {change.segment.metadata.name: change.kept for change in plan(segments, lives, config, NOW)}

    again = plan([segment(*kept, name=name) for name, kept in outcome.items() if kept], lives, config, NOW)

    assert again == []


@given(worlds, lives, st.integers(1, 10))
def test_every_record_is_kept_or_released_and_none_early(
    world: list[list[Record]], lives: dict[str, Life], count: int
) -> None:
    segments = [segment(*held, name=f"s{n}") for n, held in enumerate(world)]
    for change in plan(segments, lives, settings(ipReserveMaxCount=count), NOW):
        released = [each for each, _ in change.released]
        assert {each.cidr for each in (*change.kept, *released)} == {
            each.cidr for each in change.segment.records
        }
        for each, cause in change.released:
            life = lives.get(each.uid, GONE)
            assert (life is RUNNING) == (cause is Cause.GIVEN_BACK)
            assert life is not TERMINATING


def test_the_life_of_a_pod() -> None:
    assert life_of(None) is GONE
    assert life_of(pod()) is RUNNING
    assert life_of(pod(metadata={"deletionTimestamp": "2026-01-02T03:04:05Z"})) is TERMINATING
    assert life_of(pod(status={"phase": "Failed"})) is GONE


def test_a_change_keeps_what_it_does_not_release() -> None:
    old, young = record(ended=ago(hours=1)), record("10.0.0.2/32", uid="b", ended=ago(minutes=1))

    (change,) = plan([segment(old, young)], {}, settings(), NOW)

    assert change.kept == (young,)
    assert change.released == ((replace(old), Cause.AGE),)


def test_an_entry_that_a_hand_broke_is_written_away() -> None:
    whole = segment(record(ended=ago(minutes=1)))
    broken = replace(
        whole, spec=replace(whole.spec, reserved_cidrs=[*whole.spec.reserved_cidrs, "10.0.0.1-9"])
    )

    (change,) = plan([broken], {}, settings(), NOW)

    assert (change.kept, change.released) == (whole.records, ())
