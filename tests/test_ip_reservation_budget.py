"""Which reservations are released early, for their namespace, their pool or the cluster: values in, causes out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.ip_reservation import FINISHED
from calico.pools import Pool, pools_of
from calico.segment import IPReservation, Record
from controllers.ip_reservation.pools import PressureGauge
from controllers.ip_reservation.release_planner import Cause, Life, Pods, plan
from settings import IPReservationSettings
from tests.calico_pools import a_block, a_pool
from tests.factories import NOW, ago, record, segment
from tests.ip_reservation_world import settings

NONE = Pods({}, {})


def gone(number: int, minutes: float | None = None, **fields: Any) -> Record:
    """An address whose pod went so many minutes ago: the number of the address, unless it is given."""
    ended = ago(minutes=number if minutes is None else minutes)
    return record(f"10.0.0.{number}/32", **{"uid": f"{number}", "at": ago(hours=1), "ended": ended} | fields)


def pools(cidr: str, assigned: Sequence[int], *reservations: IPReservation) -> Sequence[Pool]:
    block = a_block("10.0.0.0/26", *(f"10.0.0.{number}" for number in assigned))
    return pools_of([a_pool(cidr)], [block], reservations)


def released(
    segments: Sequence[IPReservation],
    known: Sequence[Pool] = (),
    config: IPReservationSettings | None = None,
    pods: Pods = NONE,
) -> Mapping[int, Cause]:
    """By the numbers of their addresses."""
    changes = plan(segments, pods, config or settings(), NOW, pools=known).changes
    return {
        int(each.cidr.removesuffix("/32").rpartition(".")[2]): cause
        for change in changes
        for each, cause in change.released
    }


FIVE = segment(*(gone(number) for number in range(1, 6)))
"""The addresses 1 to 5, of which 5 went first."""


def test_nothing_is_released_for_pools_that_are_not_known_or_give_no_addresses() -> None:
    disabled = pools_of([a_pool("10.0.0.0/29", disabled=True)], [], [FIVE])

    assert released([FIVE]) == released([FIVE], disabled) == {}
    assert len(released([FIVE], pools("10.0.0.0/29", [], FIVE))) == 1


def test_each_pool_has_its_own_share_and_addresses_of_no_pool_have_none() -> None:
    held = segment(*(gone(number) for number in (1, 2, 3, 9, 10, 11)), gone(60, 2))
    narrow, wide = a_pool("10.0.0.0/30", "narrow"), a_pool("10.0.0.8/29", "wide")

    assert released([held], pools_of([narrow, wide], [], [held])) == {3: Cause.POOL}


@pytest.mark.parametrize(
    ("most", "expected"), [(None, set()), (5, set()), (4, {5}), (2, {3, 4, 5}), (1, {2, 3, 4, 5})]
)
def test_the_oldest_of_more_than_a_namespace_may_have_are_released(
    most: int | None, expected: set[int]
) -> None:
    other = segment(*(gone(number, namespace="kafka") for number in (20,)), name="b")
    bare = segment(gone(30, uid="", namespace="", pod=""), gone(31, uid="", namespace="", pod=""), name="c")

    found = released([FIVE, other, bare], (), settings(maxPerNamespace=most))

    assert found == dict.fromkeys(expected, Cause.NAMESPACE)


def test_what_a_namespace_has_too_many_of_goes_first_and_makes_room_for_the_others() -> None:
    noisy = [gone(number, minutes=1, namespace="noisy") for number in range(20, 26)]
    held = segment(*noisy, gone(1, minutes=30), gone(2, minutes=30))
    known = pools("10.0.0.0/26", [*range(32, 64), *range(3, 19)], held)

    assert released([held], known, settings()) == {}
    assert set(released([held], known, settings(maxCount=2))) == {1, 2, *range(20, 24)}
    limited = settings(maxCount=4, maxPerNamespace=2)
    assert released([held], known, limited) == dict.fromkeys(range(20, 24), Cause.NAMESPACE)


def test_each_limit_counts_what_the_one_before_it_leaves() -> None:
    expired = gone(6, minutes=41)
    held = segment(*FIVE.records, expired)
    known = pools("10.0.0.0/28", [0, *range(7, 16)][:8], held)
    config = settings(maxCount=3, maxPerNamespace=5)

    assert released([held], known, config) == {6: Cause.AGE, 5: Cause.POOL, 4: Cause.COUNT}


@pytest.mark.parametrize(
    ("most", "of_deleted", "expected"),
    [
        pytest.param(3, 3, {}, id="room for both"),
        pytest.param(1, 3, dict.fromkeys((5, 4), Cause.FINISHED), id="finished ones push out none but themselves"),
        pytest.param(3, 1, dict.fromkeys((21, 22), Cause.COUNT), id="nor do the others"),
    ],
)  # fmt: skip
def test_pods_that_finished_have_their_own_limit(
    most: int, of_deleted: int, expected: Mapping[int, Cause]
) -> None:
    finished = [gone(number, reason=FINISHED) for number in (3, 4, 5)]
    others = [gone(number, reason="deleted") for number in (20, 21, 22)]
    config = settings(maxFinished=most, maxCount=of_deleted)

    assert released([segment(*finished, *others)], (), config) == expected


def test_unconfirmed_records_displace_none_and_neither_do_addresses_that_pods_still_have() -> None:
    forged = [gone(number, uid=f"f{number}", ended=None) for number in range(10, 60)]
    going = [gone(number, uid="going", ended=None) for number in (6, 7)]
    held = segment(gone(1), gone(2), *going, *forged)
    pods = Pods({"going": Life.TERMINATING}, {}, {}, frozenset(each.key for each in forged))
    known = pools("10.0.0.0/26", [6, 7], held)

    assert released([held], known, settings(maxPerNamespace=2), pods) == {}


NUMBERS = st.integers(0, 63)
WORLDS = st.tuples(
    st.sets(NUMBERS),
    st.dictionaries(NUMBERS, st.integers(0, 39), max_size=40),
    st.sets(NUMBERS, max_size=10),
)


def view(world: tuple[set[int], dict[int, int], set[int]]) -> tuple[IPReservation, Sequence[Pool]]:
    assigned, ours, others = world
    held = segment(*(gone(number, minutes) for number, minutes in ours.items()))
    other = segment(*(gone(number) for number in others), name="other", ours=False)
    return held, pools("10.0.0.0/26", sorted(assigned), held, other)


@given(WORLDS, st.integers(1, 100))
def test_so_much_is_free_afterwards_and_no_more_is_released_for_it(
    world: tuple[set[int], dict[int, int], set[int]], share: int
) -> None:
    held, known = view(world)
    assigned, ours, others = world

    found = released([held], known, settings(maxPoolShare=f"{share}%"))

    room = {*range(64)} - assigned - others
    kept = (ours.keys() - found.keys()) & room
    assert 100 * len(kept) <= share * len(room)
    assert not found or 100 * (len(kept) + 1) > share * len(room)
    assert not found.keys() - room
    assert all(ours[old] >= ours[young] for old in found for young in kept)


@given(WORLDS, st.sets(NUMBERS, max_size=20))
def test_of_two_leaders_that_know_blocks_of_different_times_one_releases_all_that_both_do(
    world: tuple[set[int], dict[int, int], set[int]], more: set[int]
) -> None:
    """As far as they see the same reservations: so together they release no more than the tighter view needs."""
    assigned, ours, others = world
    free = more - ours.keys()
    held, before = view((assigned - free, ours, others))
    _, after = view((assigned | free, ours, others))

    assert released([held], before).keys() <= released([held], after).keys()


@given(WORLDS, st.sets(NUMBERS), st.integers(1, 99))
def test_no_pass_is_missed_when_a_pool_runs_short_between_two_of_them(
    world: tuple[set[int], dict[int, int], set[int]], then: set[int], share: int
) -> None:
    """Whatever becomes assigned since, and even if all that becomes unassigned is reserved."""
    assigned, ours, others = world
    held, known = view(world)
    config = settings(maxPoolShare=f"{share}%")
    kept = {number: age for number, age in ours.items() if number not in released([held], known, config)}
    _, left = view((assigned, kept, others))
    gauge = PressureGauge(left, share)
    old, new = (a_block("10.0.0.0/26", *(f"10.0.0.{n}" for n in each)) for each in (assigned, then))

    rises = gauge.rises(old, new)

    ended = dict.fromkeys(assigned - then, 0)
    later, short = view((then, kept | ended, others))
    assert rises or not released([later], short, config)


def test_a_gauge_counts_what_comes_bit_by_bit_and_only_in_its_pools() -> None:
    held = segment(gone(1), gone(2))
    gauge = PressureGauge(pools("10.0.0.0/28", [], held), 50)
    blocks = [a_block("10.0.0.0/26", *(f"10.0.0.{n}" for n in range(3, 3 + count))) for count in range(20)]

    elsewhere = (a_block("10.9.0.0/26", *(f"10.9.0.{n}" for n in range(count))) for count in (0, 64))
    assert not gauge.rises(*elsewhere)
    assert [gauge.rises(*pair) for pair in itertools.pairwise(blocks)].index(True) == 12
    assert not gauge.rises(blocks[-1], blocks[-1])
    assert not PressureGauge(()).rises(blocks[0], blocks[-1])
