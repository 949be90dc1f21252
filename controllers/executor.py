"""Threads that do what they are handed; daemons, so that a call that hangs keeps no process that should end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import structlog
from prometheus_client import Counter

from controllers.liveness import RUNNING

Work = Callable[[], None]

FAILURES = Counter("drawbridge_executor_failures", "Work that ended with an unexpected exception.", ["name"])

log = structlog.stdlib.get_logger(__name__)


class Executor:
    """Work should not raise; what it raises all the same is logged and counted, and ends no thread."""

    def __init__(self, name: str, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.name, self._clock = name, clock
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._since: dict[int, float] = {}
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        FAILURES.labels(name)
        RUNNING.add(self)
        for thread in self._threads:
            thread.start()

    def submit(self, work: Work) -> None:
        self._work.put(work)

    def close(self) -> None:
        """Return when all that was handed in is done."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()

    def longest_running(self) -> float:
        began = list(self._since.values())
        return self._clock() - min(began) if began else 0.0

    def _run(self, number: int) -> None:
        while work := self._work.get():
            self._since[number] = self._clock()
            try:
                work()
            except BaseException:
                # SystemExit, too: a thread that ends takes the work of all that wait for it along.
                FAILURES.labels(self.name).inc()
                log.exception("work failed", executor=self.name)
            finally:
                del self._since[number]
