"""Reconcile a key that was added until it succeeds: one worker at a time, and never in a hot loop.

The protocol of all controllers:

- Change handlers only add the object's key; they do not distinguish added, modified and deleted objects.
- ``reconcile(key)`` reads a snapshot, plans, and runs the actions. One change may lead to several runs, and several
  changes to one.
- It returns None when it is done, or the seconds after which to run again. An exception means a retry, after 5 ms,
  doubling per failure in a row up to 1000 s, or after the Retry-After of an API server that is overloaded.
- A run that it asks for comes after the pace at least; without a change in between, later each time, up to a second:
  a write that changes nothing is not repeated in a hot loop.
- What a reconcile asked for is void once its key runs again: a retry does not outlive its cause.
- A reconcile that waits in a line, or has called ``retry`` itself, returns PENDING: its key is added again by other
  means, and its failures stay counted.
- A key that is added while it runs is run once more afterwards, by the same rules.
- ``check`` runs before each reconcile and raises LeadershipLost when another process may lead. A reconcile calls it
  again before each write to the outside, and lets the error pass: its worker ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from prometheus_client import Counter, Gauge

from controllers.liveness import RUNNING
from kube.errors import Backoff, KubeError, asked_pause
from kube.leader_election import LeadershipLost
from runtime import threading, time

DEPTH = Gauge("drawbridge_workqueue_depth", "Keys that wait for a worker.", ["name"])
ADDS = Counter("drawbridge_workqueue_adds", "Keys that were queued.", ["name"])
RETRIES = Counter("drawbridge_workqueue_retries", "Keys that failed and were queued again.", ["name"])
LONGEST_RUNNING = Gauge(
    "drawbridge_workqueue_longest_running_seconds", "Age of the work that began first.", ["name"]
)

RETRY_PAUSES = Backoff(base=0.005, cap=1000.0)
"""As client-go's default rate limiter does per item."""
PACE = 0.02
"""Seconds from a reconcile that asks for another run to that run, at least."""
IN_A_ROW = 10
"""So many runs in a row that no change asked for may come at the pace; further ones come later each time."""
REST = Backoff(base=PACE, cap=1.0)
LONGEST_WAIT = 3600.0
"""Seconds: a lock cannot wait for centuries, and some deadlines are further away."""
VOID = 100
"""So many promises that are void, and as many as are not, are kept until their time: that may be days away."""

PENDING = float("inf")
"""Of a reconcile that has seen to its next run itself."""

Reconcile = Callable[[str], float | None]

log = structlog.get_logger(__name__)


class Stopping(Exception):
    """The process stops, so a wait was cut short. It does not mean that leadership is lost."""


class WorkQueue:
    """Each key waits at most once and is with at most one worker; delays are in seconds of *clock*."""

    def __init__(
        self, name: str, *, pauses: Backoff = RETRY_PAUSES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self._pauses, self._clock = name, pauses, clock
        self._in_a_row: dict[str, int] = {}  # runs that its own reconcile asked for
        self._waiting: dict[str, None] = {}  # in order
        self._running: dict[str, float] = {}  # since when
        self._again: set[str] = set()
        self._delayed: list[tuple[float, str, bool]] = []
        self._due: dict[tuple[str, bool], float] = {}  # of a key, and whether its own reconcile asked for it
        self._failures: dict[str, int] = {}
        self._closed = False
        self._changed = threading.Condition()
        DEPTH.labels(name).set_function(lambda: len(self._waiting))
        LONGEST_RUNNING.labels(name).set_function(self.longest_running)
        RUNNING.add(self)

    def add(self, key: str) -> None:
        with self._changed:
            self._in_a_row.pop(key, None)
            self._add(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Add it after *seconds*, or sooner if it is due sooner."""
        with self._changed:
            self._in_a_row.pop(key, None)
            if self._clock() + seconds < self._due.get((key, False), float("inf")):
                self._promise(key, seconds)

    def succeeded(self, key: str, again: float | None) -> None:
        """Its next failure is the first. Add it after *again* seconds, as its reconcile asks, but not before the pace.

        That is void once the key runs before; without *again*, only a change makes it run.
        """
        with self._changed:
            self._failures.pop(key, None)
            if again is None:
                self._in_a_row.pop(key, None)
                return
            times = self._in_a_row[key] = self._in_a_row.get(key, 0) + 1
            self._promise(key, max(again, REST.delay(max(1, times - IN_A_ROW))), by_itself=True)

    def retry(self, key: str, error: Exception | None = None) -> float:
        """Add it after a pause that doubles until it has succeeded, or that *error* asks for; return the seconds."""
        RETRIES.labels(self.name).inc()
        with self._changed:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            pause = max(self._pauses.delay(failures), asked_pause(error))
            self._promise(key, pause, by_itself=True)
        return pause

    def failures(self, key: str) -> int:
        """In a row, of those that were followed by `retry`."""
        return self._failures.get(key, 0)

    def get(self, *, wait: bool = True) -> str | None:
        """The next key, to be given back by :meth:`done`; None without one to *wait* for, or after `shut_down`."""
        with self._changed:
            while not self._closed:
                self._promote()
                if self._waiting or not wait:
                    if self._delayed:
                        self._changed.notify()  # another one waits for what is due next
                    return self._take() if self._waiting else None
                due = self._delayed[0][0] - self._clock() if self._delayed else None
                self._changed.wait(None if due is None else min(due, LONGEST_WAIT))
        return None

    def done(self, key: str) -> None:
        with self._changed:
            del self._running[key]
            if key in self._again:
                self._again.discard(key)
                self._add(key)

    @property
    def idle(self) -> bool:
        """Whether no key waits, was promised or is with a worker."""
        with self._changed:
            return not (self._waiting or self._due or self._running)

    def shut_down(self) -> None:
        """Let workers finish the keys that run; waiting keys are left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _add(self, key: str) -> None:
        if key in self._running:
            self._again.add(key)
        elif key not in self._waiting:
            ADDS.labels(self.name).inc()
            self._waiting[key] = None
            self._changed.notify()

    def _promise(self, key: str, seconds: float, *, by_itself: bool = False) -> None:
        due = self._due[key, by_itself] = self._clock() + seconds
        heapq.heappush(self._delayed, (due, key, by_itself))
        if len(self._delayed) > 2 * len(self._due) + VOID:
            self._delayed = sorted((due, *of) for of, due in self._due.items())
        if self._delayed[0] == (due, key, by_itself):
            self._changed.notify()  # one that waits must know until when

    def _promote(self) -> None:
        while self._delayed and self._delayed[0][0] <= self._clock():
            due, key, by_itself = heapq.heappop(self._delayed)
            if self._due.get((key, by_itself)) == due:  # not replaced by another promise, nor void
                del self._due[key, by_itself]
                self._add(key)

    def _take(self) -> str:
        key = next(iter(self._waiting))
        del self._waiting[key]
        self._running[key] = self._clock()
        self._due.pop((key, True), None)  # this run is what was asked for, or makes it needless
        return key

    def longest_running(self) -> float:
        """Seconds since the work began that began first; 0 while there is none."""
        with self._changed:
            return self._clock() - min(self._running.values()) if self._running else 0.0


@contextmanager
def working(
    queue: WorkQueue,
    reconcile: Reconcile,
    workers: int = 1,
    check: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Reconcile keys within the block, unless leadership is lost; on exit, finish those that run."""
    threads = [
        threading.Thread(
            target=_work, args=(queue, reconcile, check), name=f"{queue.name}-{number}", daemon=True
        )
        for number in range(workers)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        queue.shut_down()
        for thread in threads:
            thread.join()


def _work(queue: WorkQueue, reconcile: Reconcile, check: Callable[[], None]) -> None:
    while (key := queue.get()) is not None:
        try:
            check()
            _reconcile(queue, reconcile, key)
        except LeadershipLost:
            log.warning("worker ended, leadership lost", queue=queue.name, key=key)
            return
        finally:
            queue.done(key)


def _reconcile(queue: WorkQueue, reconcile: Reconcile, key: str) -> None:
    try:
        again = reconcile(key)
    except LeadershipLost:
        raise
    except Stopping:
        return
    except Exception as error:
        bug, pause = not isinstance(error, KubeError), queue.retry(key, error)
        log.error("reconcile failed", queue=queue.name, key=key, error=str(error), pause=pause, exc_info=bug)
        return
    if again != PENDING:
        queue.succeeded(key, again)
