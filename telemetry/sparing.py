"""Warnings that any client can cause: few of them are logged, so that a hostile one cannot fill the log."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from runtime import threading, time

INTERVAL = 1.0
"""Seconds between two messages of one event."""


class SparingLogger:
    """Passes on the first warning of each event in an interval, with how many were *omitted* since the last one."""

    def __init__(self, log: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._next: dict[str, float] = {}
        self._omitted = Counter[str]()
        self._lock = threading.Lock()

    def warning(self, event: str, **details: object) -> None:
        with self._lock:
            now = self._clock()
            if now < self._next.get(event, now):
                self._omitted[event] += 1
                return
            self._next[event] = now + INTERVAL
            omitted = self._omitted.pop(event, 0)
        self._log.warning(event, omitted=omitted, **details)
