"""Threads that do what they are handed; daemons, so that a call that hangs keeps no process that should end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]


class Pool:
    """The work must not raise: nobody would hear of it."""

    def __init__(self, name: str, threads: int) -> None:
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
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

    def _run(self) -> None:
        while work := self._work.get():
            work()
