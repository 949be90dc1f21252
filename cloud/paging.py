"""Read a list that is handed out in pages to its end, and divide work into what one call may carry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol, TypeVar

from cloud.errors import CloudError, Gone

T = TypeVar("T")
PASSES = 3


class Named(Protocol):
    @property
    def id(self) -> str: ...


N = TypeVar("N", bound=Named)
Page = tuple[list[N], int]
"""The rows from an offset on, and how many there are in all."""


def everything(page: Callable[[int], Page[N]]) -> list[N]:
    """Every row, each once, with *page* a function of the offset.

    A row that comes or goes between two pages moves others across their border. So a list that changed
    while it was read is read again, up to three times, and all that was seen counts: of rows that came or
    went in the meantime, some may be missing and some be gone.
    """
    seen: dict[str, N] = {}
    for _ in range(PASSES):
        rows, totals = _one_pass(page)
        seen |= {row.id: row for row in rows}
        if totals == {len({row.id for row in rows})}:
            break
    return list(seen.values())


def _one_pass(page: Callable[[int], Page[N]]) -> tuple[list[N], set[int]]:
    rows: list[N] = []
    totals: set[int] = set()
    while True:
        more, total = page(len(rows))
        rows += more
        totals.add(total)
        if not more or len(rows) >= total:
            return rows, totals


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    yield from (items[start : start + size] for start in range(0, len(items), size))


def in_halves(
    call: Callable[[Sequence[T]], object], items: Sequence[T], spoiling: tuple[type[CloudError], ...]
) -> dict[T, CloudError]:
    """Do *call* for all items, though one that the cloud refuses spoils the call for all that are in it.

    A call that fails with one of the *spoiling* errors is made again for each half. Returns the refused
    items with their errors; any other error is raised.
    """
    try:
        call(items)
    except spoiling as error:
        if len(items) == 1:
            return {items[0]: error}
        middle = len(items) // 2
        return in_halves(call, items[:middle], spoiling) | in_halves(call, items[middle:], spoiling)
    return {}


def gathered(ask: Callable[[Sequence[str]], list[T]], ids: Collection[str], size: int) -> list[T]:
    """What *ask* finds for all ids, *size* at a time, though an id of nothing may spoil a question."""
    found: list[T] = []

    def add(some: Sequence[str]) -> None:
        found.extend(ask(some))

    for batch in batches(sorted(set(ids)), size):
        in_halves(add, batch, (Gone,))
    return found
