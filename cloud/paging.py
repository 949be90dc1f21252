"""Read a list that is handed out in pages to its end, and divide work into what one call may carry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from cloud.errors import Gone
from cloud.types import Address

T = TypeVar("T")
E = TypeVar("E", bound=Exception)
PASSES = 3
ENOUGH = 2
"""So many different items that are refused alone make a refusal one of all."""


Page = tuple[list[Address], int]
"""The rows from an offset on, and how many there are in all."""


def everything(page: Callable[[int], Page]) -> list[Address]:
    """Every row, each once, with *page* a function of the offset.

    A row that comes or goes between two pages moves others across their border. So a list that changed
    while it was read is read again, up to three times, and all that was seen counts: of rows that came or
    went in the meantime, some may be missing and some be gone.
    """
    seen: dict[str, Address] = {}
    for _ in range(PASSES):
        rows, totals = list[Address](), set[int]()
        while True:
            more, total = page(len(rows))
            rows += more
            totals.add(total)
            if not more or len(rows) >= total:
                break
        found = {row.id: row for row in rows}
        seen |= found
        if totals == {len(found)}:
            break
    return list(seen.values())


def in_halves(
    call: Callable[[Sequence[T]], object],
    items: Sequence[T],
    spoiling: tuple[type[E], ...],
    *,
    general: tuple[type[E], ...] = (),
    size: int = 0,
) -> dict[T, E]:
    """Do *call* for all items, *size* at a time, though one that is refused spoils the call for all that are in it.

    A call that fails with one of the *spoiling* errors is made again for each half. When two items are refused
    alone with *general* errors before anything was done, the rest counts as refused, too, without a call. Returns
    the refused items with their errors; any other error is raised.
    """
    refused: dict[T, E] = {}
    size = size or max(1, len(items))
    left = [items[start : start + size] for start in range(0, len(items), size)][::-1]
    served = False
    while left:
        some = left.pop()
        try:
            call(some)
            served = True
        except spoiling as error:
            if len(some) > 1:
                middle = len(some) // 2
                left += [some[middle:], some[:middle]]
                continue
            refused[some[0]] = error
            if not served and sum(isinstance(each, general) for each in refused.values()) >= ENOUGH:
                return refused | {each: error for group in left for each in group}
    return refused


def gathered(ask: Callable[[Sequence[str]], list[T]], ids: Collection[str], size: int) -> list[T]:
    """What *ask* finds for all ids, *size* at a time, though an id of nothing may spoil a question."""
    found: list[T] = []
    in_halves(lambda some: found.extend(ask(some)), sorted(set(ids)), (Gone,), size=size)
    return found
