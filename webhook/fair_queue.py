"""A few threads that work for all clients in turn, so that many connections of one client do not delay another's."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

Job = Callable[[], object]


class FairQueue:
    """Takes one job of each client after the other; the jobs of one client are done in their order."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, "fair")
        self._lines: OrderedDict[Hashable, deque[Job]] = OrderedDict()
        self._lock = threading.Lock()

    def submit(self, client: Hashable, job: Job) -> None:
        with self._lock:
            self._lines.setdefault(client, deque()).append(job)
        self._pool.submit(self._work)

    def _work(self) -> None:
        """There are as many calls of it as jobs."""
        self._next()()

    def _next(self) -> Job:
        with self._lock:
            client, line = next(iter(self._lines.items()))
            job = line.popleft()
            self._lines.move_to_end(client)
            if not line:
                del self._lines[client]
        return job
