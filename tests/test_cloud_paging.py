"""Lists in pages, and work in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.errors import Gone, NotPermitted, StateConflict
from cloud.paging import everything, in_halves
from cloud.types import Address
from tests.cloud_server import error

SIZE = 10


def address(number: int) -> Address:
    return Address(id=f"eip-{number}", status="UNBIND")


def pages(
    world: list[Address], between: Callable[[int], object] = lambda calls: None
) -> Callable[[int], tuple[list[Address], int]]:
    """Pages of *world*; *between* runs after each, with their number so far."""
    calls = 0

    def page(offset: int) -> tuple[list[Address], int]:
        nonlocal calls
        found = world[offset : offset + SIZE], len(world)
        calls += 1
        between(calls)
        return found

    return page


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 25, 30])
def test_every_row_is_read_also_those_of_the_last_page(count: int) -> None:
    world = [address(number) for number in range(count)]
    assert everything(pages(world)) == world


def test_a_list_that_stands_still_is_read_once() -> None:
    asked = []
    world = [address(number) for number in range(25)]
    everything(pages(world, asked.append))
    assert len(asked) == 3


@given(removed=st.integers(0, 29), after=st.integers(1, 3))
def test_a_row_that_goes_in_between_hides_none_that_stays(removed: int, after: int) -> None:
    world = [address(number) for number in range(30)]
    stays = [row for row in world if row.id != f"eip-{removed}"]

    def remove(calls: int) -> None:
        if calls == after:
            del world[removed]

    assert {row.id for row in stays} <= {row.id for row in everything(pages(world, remove))}


def test_a_row_that_comes_in_between_is_not_listed_twice() -> None:
    world = [address(number) for number in range(30)]

    def add(calls: int) -> None:
        if calls == 1:
            world.insert(0, address(99))

    ids = [row.id for row in everything(pages(world, add))]
    assert len(ids) == len(set(ids)) == 31


def test_a_list_that_never_stands_still_ends_nevertheless() -> None:
    world = [address(number) for number in range(30)]
    assert len(everything(pages(world, lambda calls: world.pop()))) >= 15


def test_a_total_that_promises_too_much_ends_nevertheless() -> None:
    assert everything(lambda offset: ([], 100)) == []


@given(bad=st.sets(st.integers(0, 19)))
def test_the_refused_spoil_it_for_no_other(bad: set[int]) -> None:
    done: set[int] = set()

    def call(items: Sequence[int]) -> None:
        if bad & set(items):
            raise error(Gone)
        done.update(items)

    refused = in_halves(call, list(range(20)), (Gone, StateConflict))
    assert set(refused) == bad
    assert done == set(range(20)) - bad


@given(bad=st.sets(st.integers(0, 19)), size=st.sampled_from([0, 1, 7, 20]))
def test_what_may_be_refused_to_all_is_asked_for_each_once_one_was_served(bad: set[int], size: int) -> None:
    done: set[int] = set()
    calls = 0

    def call(items: Sequence[int]) -> None:
        nonlocal calls
        calls += 1
        if bad & set(items):
            raise error(NotPermitted)
        done.update(items)

    refused = in_halves(call, list(range(20)), (NotPermitted,), general=(NotPermitted,), size=size)
    assert set(refused) >= bad
    assert done | set(refused) == set(range(20))
    assert not done & set(refused)
    assert set(refused) == bad or (not done and calls <= 8)


def test_an_error_that_is_not_about_one_of_them_is_raised_at_once() -> None:
    calls = []

    def call(items: Sequence[int]) -> None:
        calls.append(items)
        raise error(NotPermitted)

    with pytest.raises(NotPermitted):
        in_halves(call, [1, 2], (Gone,))
    assert len(calls) == 1
