"""Run calls on a fixed number of daemon threads: a call that hangs does not keep the process from ending."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from prometheus_client import Counter

from controllers.liveness import RUNNING
from runtime import SimpleQueue, threading, time

Work = Callable[[], None]
Submit = Callable[[Work], None]

FAILURES = Counter("drawbridge_executor_failures", "Work that ended with an unexpected exception.", ["name"])

log = structlog.stdlib.get_logger(__name__)


class Executor:
    """A context manager: it yields the function that submits work, and waits on exit for all that was submitted.

    Work should not raise; an exception is logged and counted, and the thread goes on.
    """

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

    def __enter__(self) -> Submit:
        return self._work.put

    def __exit__(self, *_: object) -> None:
        for _thread in self._threads:
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
                # SystemExit, too: a thread that ended would leave submitted work undone.
                FAILURES.labels(self.name).inc()
                log.exception("work failed", executor=self.name)
            finally:
                del self._since[number]
