"""Forged records displace none, and prolong nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from calico.segment import IPReservation, Record
from controllers.ip_reservation import release_planner
from controllers.ip_reservation.release_planner import Cause, Change, Life, Pods
from settings import IPReservationSettings
from tests.factories import NOW, ago, record, segment
from tests.ip_reservation_world import doubted


def config(**values: Any) -> IPReservationSettings:
    return IPReservationSettings.model_validate(
        {"duration": "40m", "maxCount": 3, "giveBackAfter": "2m"} | values
    )


def plan(
    segments: Sequence[IPReservation], pods: Pods, settings: IPReservationSettings, now: datetime
) -> Sequence[Change]:
    return release_planner.plan(segments, pods, settings, now).changes


def test_a_foreign_address_for_a_running_pod_is_not_given_back_but_dropped() -> None:
    forged = record("10.0.0.9/32")
    waits = {(forged.cidr, forged.uid, forged.at): 600.0}

    waiting = Pods({forged.uid: Life.RUNNING}, waits, **doubted(unconfirmed=[forged]))
    assert plan([segment(forged)], waiting, config(), NOW) == []

    (change,) = plan([segment(forged)], dataclasses.replace(waiting, **doubted(forged)), config(), NOW)
    assert change.released == ((forged, Cause.FORGED),)


def test_a_forged_repetition_prolongs_nothing() -> None:
    true, again = segment(record(ended=ago(minutes=39)), name="a"), segment(record(at=NOW), name="b")

    (change,) = plan([true, again], Pods({}, {}), config(), NOW)
    # The copy with the end stays until the other one has it: a leader that is killed, or a conflict, loses no end.
    assert change.segment.metadata.name == "b"
    assert (change.kept, change.released) == ((record(at=NOW, ended=ago(minutes=39)),), ())

    (change,) = plan([true, segment(*change.kept, name="b")], Pods({}, {}), config(), NOW)
    assert (change.segment.metadata.name, change.kept, change.released) == ("a", (), ())


def test_a_record_that_is_forged_after_its_pod_is_gone_counts_from_that() -> None:
    late = record(at=NOW)
    pods = Pods({}, {}, {late.key: ago(minutes=40)})

    (noted,) = plan([segment(late)], pods, config(), NOW)
    assert noted.kept == (replace(late, ended=ago(minutes=40)),)

    (change,) = plan([segment(*noted.kept)], pods, config(), NOW)
    assert change.released == ((noted.kept[0], Cause.AGE),)


moments = st.integers(-600, 6000).map(lambda seconds: ago(seconds=seconds))


def some(uids: Sequence[str], ended: st.SearchStrategy[datetime | None]) -> st.SearchStrategy[list[Record]]:
    each = st.builds(
        record,
        cidr=st.integers(1, 9).map(lambda n: f"10.0.0.{n}/32"),
        uid=st.sampled_from(uids),
        at=moments,
        asked=st.none() | moments,
        ended=ended,
    )
    return st.lists(each, max_size=8, unique_by=lambda record: record.key)


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
    changes = {each.segment.metadata.name: each for each in plan(segments, pods, config(maxCount=count), NOW)}
    unchanged = {each.metadata.name: (list(each.records), []) for each in segments}
    return unchanged | {name: (list(each.kept), list(each.released)) for name, each in changes.items()}
