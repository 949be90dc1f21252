"""A refusal is the caller's own until a second caller is refused; from then on one at a time tries for all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from cloud.errors import CloudError, NotPermitted, RetryAfter
from runtime import threading, time

FIRST, LONGEST = 10.0, 300.0
"""Seconds between two attempts while a quota is used up or something is not permitted; they double."""
REFUSED_LATER = 1.0
"""Seconds by which callers that were refused themselves come after the others: not always the same one tries."""
PROBE = 30.0
"""Seconds within which the attempt for all is answered."""
ENOUGH = 2
"""So many different callers that are refused make a refusal one of all."""
KEPT = 3600.0


@dataclass
class _Refusal:
    """*own*: others were served meanwhile, so that it says nothing of them."""

    error: CloudError
    times: int = 0
    until: float = -math.inf
    own: bool = False


class CircuitBreaker:
    """Safe to share between threads; *closed* is called when callers that were refused may try at once."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, closed: Callable[[], None] = lambda: None
    ) -> None:
        self._clock, self._closed = clock, closed
        self._refusals: dict[str, _Refusal] = {}
        self._times, self._until = 0, -math.inf
        self._error: CloudError | None = None
        self._probe = ""
        self._lock = threading.Lock()

    def admit(self, key: str) -> RetryAfter | None:
        """None when *key* may call; else when it may, and the refusal that it waits for."""
        with self._lock:
            now, mine = self._clock(), self._refusals.get(key)
            if self._error is None:
                return RetryAfter(mine.error, mine.until - now) if mine and mine.until > now else None
            due = self._until + (REFUSED_LATER if mine else 0.0)
            if due > now:
                return RetryAfter(mine.error if mine else self._error, due - now)
            self._probe, self._until = key, now + PROBE
            return None

    def refused(self, key: str, error: CloudError) -> RetryAfter:
        with self._lock:
            now = self._clock()
            mine = self._refusals.setdefault(key, _Refusal(error))
            mine.error, mine.times = error, mine.times + 1
            mine.own = mine.own and isinstance(error, NotPermitted)
            mine.until = now + _pause(mine.times)
            suspects = sum(not each.own for each in self._refusals.values())
            # One that was under way already says no more than the first.
            is_new = self._until <= now or key == self._probe or self._error is None
            if not mine.own and is_new and (self._error or suspects >= ENOUGH):
                self._times += 1
                self._error, self._probe = self._error or error, ""
                self._until = now + _pause(self._times)
            self._refusals = {k: each for k, each in self._refusals.items() if each.until > now - KEPT}
            until = mine.until if self._error is None else self._until + REFUSED_LATER
            return RetryAfter(error, until - now)

    def served(self, key: str) -> None:
        """The call is possible: a policy that refuses others is about them."""
        with self._lock:
            if not self._refusals and self._error is None:
                return
            was_open, self._error, self._times = self._error is not None, None, 0
            self._refusals.pop(key, None)
            again = [
                each
                for each in self._refusals.values()
                if was_open or not isinstance(each.error, NotPermitted)
            ]
            for each in self._refusals.values():
                each.own = True
            for each in again:
                each.times, each.until = 0, -math.inf
        if was_open or again:
            self._closed()

    def try_again(self) -> None:
        """Something has changed: the refused may try at once."""
        with self._lock:
            if not self._refusals and self._error is None:
                return
            self._until = -math.inf
            for each in self._refusals.values():
                each.until, each.times = -math.inf, 0
        self._closed()


def _pause(times: int) -> float:
    return float(min(LONGEST, FIRST * 2.0 ** min(times - 1, 10)))
