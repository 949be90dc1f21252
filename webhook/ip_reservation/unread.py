"""Bound what a client that is not authenticated can reserve: its review names pods that may not exist.

To read the pod of each deletion would make all of them slower. So a few addresses are reserved as the review has them;
the leader drops those of pods that never existed, in about a minute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from runtime import threading, time

MOST = 16
"""Addresses of pods that were not read, which one server reserves in WINDOW."""
WINDOW = 90.0
"""Seconds in which the leader drops a forged record: a bookmark of its watch may take one minute."""


class Unread:
    """Counts the addresses that were reserved for pods that were not read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._times: deque[float] = deque()

    def takes(self, addresses: int) -> bool:
        """Whether so many more may be; they count then."""
        now = self._clock()
        with self._lock:
            while self._times and now - self._times[0] >= WINDOW:
                self._times.popleft()
            if len(self._times) + addresses > MOST:
                return False
            self._times.extend([now] * addresses)
            return True
