"""Bound a loop of calls that may hang; what a pass has no time for comes first in the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import TypeVar

from controllers.clock import Clock

T = TypeVar("T")
IsOver = Callable[[], bool]
"""Whether the leader stops; LeadershipLost when another one may lead."""


def never() -> bool:
    return False


class Turns:
    """Calls of one loop, over all passes: *seconds* for those of each pass, and none once the leader's time is over."""

    def __init__(self, clock: Clock, seconds: float, is_over: IsOver) -> None:
        self._clock, self._seconds, self._is_over = clock, seconds, is_over
        self._number = count(1)
        self._turns: dict[str, int] = {}

    def of(self, items: Mapping[str, T]) -> Iterator[tuple[T, float]]:
        """Each of *items*, by name, with the seconds that are left: first what was not reached for longest."""
        self._turns = {name: number for name, number in self._turns.items() if name in items}
        end = self._clock.monotonic() + self._seconds
        for name in sorted(items, key=lambda each: self._turns.get(each, 0)):
            left = end - self._clock.monotonic()
            if left <= 0 or self._is_over():
                return
            self._turns[name] = next(self._number)
            yield items[name], left
