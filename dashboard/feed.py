"""One read for all who look at the same page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from runtime import threading, time

T = TypeVar("T")

INTERVAL = 2.0
"""Seconds between two reads at least."""
SHARE = 5
"""A read is not repeated before this many times its own duration: a large cluster is read less often."""


class Feed(Generic[T]):
    """Safe to use from any thread: one reads, and the others wait for what it finds."""

    def __init__(self, read: Callable[[], T], clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self._clock = read, clock
        self._lock = threading.Lock()
        self._latest: tuple[T] | None = None
        self._due = 0.0

    def latest(self) -> T:
        with self._lock:
            if self._latest is None or self._clock() >= self._due:
                began = self._clock()
                self._latest = (self._read(),)
                ended = self._clock()
                self._due = ended + max(INTERVAL, SHARE * (ended - began))
            return self._latest[0]

    def expire(self) -> None:
        """Read again for the next who looks: something was written."""
        with self._lock:
            self._due = 0.0
