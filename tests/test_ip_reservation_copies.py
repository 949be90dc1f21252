"""Which copy of a record is dropped, and what all of them say together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from calico.segment import IPReservation, Record
from controllers.ip_reservation.release_planner import Copy, by_identity, merged
from tests.factories import NOW, ago, record, segment


def in_segment(each: Record, name: str, level: int = 0, seconds: int = 0) -> IPReservation:
    made = segment(each, name=name, level=level)
    created = NOW + timedelta(seconds=seconds)
    return replace(made, metadata=replace(made.metadata, creation_timestamp=created))


@pytest.mark.parametrize(
    ("lesser", "greater"),
    [
        pytest.param(in_segment(record(), "z", 0, 9), in_segment(record(), "a", 1), id="a batch's"),
        pytest.param(in_segment(record(), "z", 9, 9), in_segment(record(), "a", 10), id="compacted again"),
        pytest.param(in_segment(record(), "z"), in_segment(record(), "a", seconds=1), id="created first"),
        pytest.param(in_segment(record(), "a"), in_segment(record(), "b"), id="the first name"),
        pytest.param(
            in_segment(record(late=True), "z", 5, 9), in_segment(record(), "a"), id="late, and of any level"
        ),
    ],
)
def test_the_lesser_copy_is_dropped_of_two_that_say_the_same(
    lesser: IPReservation, greater: IPReservation
) -> None:
    for segments in ([lesser, greater], [greater, lesser]):
        [(first, last)] = by_identity(segments).values()
        assert (first.segment, last.segment) == (lesser, greater)
        assert first.is_covered_by(last, goes=False)
        assert not last.is_covered_by(first, goes=True)


@pytest.mark.parametrize(
    ("held", "other", "covered", "covered_when_it_goes"),
    [
        pytest.param(record(asked=NOW), record(), False, True, id="asked later"),
        pytest.param(record(), record(asked=NOW), True, True, id="asked before"),
        pytest.param(record(at=NOW), record(asked=ago(seconds=1)), False, True, id="first asked later"),
        pytest.param(record(ended=NOW), record(), False, False, id="ended"),
        pytest.param(record(ended=NOW), record(ended=NOW), True, True, id="ended at the same time"),
        pytest.param(record(ended=ago(seconds=1)), record(ended=NOW), False, False, id="ended before"),
        pytest.param(record(), record(ended=NOW), True, True, id="not ended"),
    ],
)
def test_a_copy_is_dropped_only_when_the_greater_one_says_as_much(
    held: Record, other: Record, covered: bool, covered_when_it_goes: bool
) -> None:
    lesser, greater = Copy(in_segment(held, "a"), held), Copy(in_segment(other, "b"), other)

    assert lesser.is_covered_by(greater, goes=False) is covered
    assert lesser.is_covered_by(greater, goes=True) is covered_when_it_goes


def test_copies_together_say_what_came_first_and_what_was_asked_last() -> None:
    first = record(at=ago(minutes=9), asked=ago(minutes=5), ended=ago(minutes=1), late=True, node="a")
    second = record(at=ago(minutes=3), ended=ago(minutes=2), node="b")
    (copies,) = by_identity([in_segment(first, "a", 1), in_segment(second, "b")]).values()

    assert merged(copies) == replace(
        second, at=ago(minutes=9), asked=ago(minutes=3), ended=ago(minutes=2), late=False
    )
    assert merged(copies[:1]) == first


def test_what_only_one_copy_says_is_kept_and_a_copy_alone_is_no_second_request() -> None:
    ended = record(ended=ago(minutes=1))
    (copies,) = by_identity([in_segment(ended, "a"), in_segment(record(), "b")]).values()

    assert merged(copies) == ended


def test_records_of_different_pods_and_of_none_are_no_copies() -> None:
    records = [record(), record(uid="b"), record(uid=""), record(uid="")]
    segments = [in_segment(each, f"{n}") for n, each in enumerate(records)]

    assert [len(each) for each in by_identity(segments).values()] == [1] * 4


moments = st.integers(0, 3).map(lambda seconds: ago(seconds=seconds))
copies_of_one = st.lists(
    st.builds(
        in_segment,
        st.builds(
            record, at=moments, asked=st.none() | moments, ended=st.none() | moments, late=st.booleans()
        ),
        st.uuids().map(str),
        st.sampled_from([None, 0, 1, 2]),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda each: each.metadata.name,
)


@given(st.data(), copies_of_one)
def test_what_leaders_with_different_views_drop_is_still_said_by_a_greater_copy(
    data: st.DataObject, segments: list[IPReservation]
) -> None:
    """Each of three leaders sees some of the copies, whichever have been dropped meanwhile."""
    views = [data.draw(st.sets(st.sampled_from(range(len(segments))))) for _ in range(3)]
    gone = {name for view in views for name in dropped([segments[n] for n in sorted(view)])}

    (copies,) = by_identity(segments).values()
    left = [each for each in copies if each.segment.metadata.name not in gone]

    assert copies[-1] in left
    for each in copies:
        assert each in left or any(each.is_covered_by(other, goes=False) for other in left)


def dropped(view: Sequence[IPReservation]) -> set[str]:
    return {
        each.segment.metadata.name
        for copies in by_identity(view).values()
        for number, each in enumerate(copies)
        if any(each.is_covered_by(other, goes=False) for other in copies[number:])
    }
