"""Keep each API under its share of the documented rate, whatever the number of threads that call it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from cloud.apis import Api


class RateLimiter:
    """Turns at even distances, given out in the order of asking.

    The cloud counts by the second; even distances never put more into any second, however it is cut.
    *share* is the part of the documented rate that is ours: people at the console and other clusters of
    the account draw on the same budget.
    """

    def __init__(
        self,
        share: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._share, self._clock, self._sleep = share, clock, sleep
        self._lock = threading.Lock()
        self._next: dict[str, float] = {}

    def wait(self, api: Api, deadline: float) -> bool:
        """Wait for a turn; False at once, and no turn taken, when there is none before *deadline*."""
        with self._lock:
            now = self._clock()
            turn = max(now, self._next.get(api.action, now))
            if turn > deadline:
                return False
            self._next[api.action] = turn + 1 / (api.rate * self._share)
        if turn > now:
            self._sleep(turn - now)
        return True
