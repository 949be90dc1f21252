"""Limit the calls of each action in a second."""

from __future__ import annotations

import math
from collections import defaultdict, deque

from dev.lab.cloud.config import Knobs
from dev.lab.cloud.envelope import Fault


class Limits:
    """One window of a second for each action and caller; a call that is refused does not count."""

    def __init__(self) -> None:
        self._taken: defaultdict[tuple[str, str], deque[float]] = defaultdict(deque)

    def take(self, knobs: Knobs, action: str, caller: str, documented: float, now: float) -> None:
        """Raises Fault when the window is full."""
        limit = math.floor(knobs.rates.get(action, documented))
        if not knobs.rate_limits:
            return
        taken = self._taken[action, caller]
        while taken and taken[0] < math.floor(now):
            taken.popleft()
        if len(taken) >= limit:
            raise exceeded(action, len(taken) + 1, limit)
        taken.append(now)


def exceeded(action: str, times: int, limit: int) -> Fault:
    return Fault(
        "RequestLimitExceeded",
        f"{action} was called {times} times within a second, which exceeds the frequency limit of {limit} a "
        "second. Please reduce the frequency of calls.",
    )
