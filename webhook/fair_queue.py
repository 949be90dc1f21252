"""A few turns to compute at a time, so that a request does not share the interpreter with all that others ask for.

Python computes in one thread at a time, and changes threads without a look at what they do: of a hundred that compute,
each gets a hundredth. So only a few jobs run at once, and of those that wait, the first is one of the client that has
used the least CPU time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeVar

from kube.waiting import taking
from runtime import futures, threading, time

HALF_LIFE = 5.0
"""Seconds after which half of what a client has used is forgotten."""
FORGOTTEN = 0.0005
"""CPU seconds below which nothing of a client is remembered."""
LONGEST = 1.0
"""Seconds of a turn, after which the next one begins without its end: nothing that is stuck may stop all others."""

T = TypeVar("T")


class Usage:
    """CPU seconds that clients have used lately; it remembers no more clients than can be served in that time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._used: dict[Hashable, float] = {}
        self._halved_at = clock()
        self._lock = threading.Lock()

    def of(self, client: Hashable) -> float:
        return self._used.get(client, 0.0)

    def add(self, client: Hashable, seconds: float) -> None:
        with self._lock:
            if halvings := int((self._clock() - self._halved_at) / HALF_LIFE):
                self._halved_at += halvings * HALF_LIFE
                left = ((each, used * 0.5**halvings) for each, used in self._used.items())
                self._used = {each: used for each, used in left if used > FORGOTTEN}
            self._used[client] = self.of(client) + seconds


class FairQueue:
    """Jobs by client: at most *turns* of them run at once in threads of *start*; those of one client in their order.

    Queues that share a *usage* share what is known of clients. *cpu* is the time that the calling thread has computed.
    """

    def __init__(
        self,
        start: Callable[[Callable[[], None]], object],
        turns: int,
        usage: Usage,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._start, self._turns, self._usage = start, turns, usage
        self._clock, self._cpu = clock, cpu
        self._lines: dict[Hashable, deque[_Turn]] = {}
        self._back = deque[_Turn]()
        self._running: dict[_Turn, float] = {}
        self._lock = threading.Lock()

    def submit(self, client: Hashable, job: Callable[[], T]) -> futures.Future[T]:
        turn = _Turn(self, client, job)
        if self._begins_alone(turn):
            self._start(partial(self._work, turn))
        else:
            with self._lock:
                self._lines.setdefault(client, deque()).append(turn)
            self.start_due()
        return turn.done

    def start_due(self) -> None:
        """Start what has a turn now. To be called at times: after a turn that takes too long, nothing else does."""
        while turn := self._next():
            self._start(partial(self._work, turn))

    def leave(self, turn: _Turn) -> None:
        self._end(turn)
        self.start_due()

    def resume(self, turn: _Turn) -> None:
        """Before all that have not begun, who may wait for what it holds."""
        if self._begins_alone(turn):
            return
        with self._lock:
            turn.returned = returned = threading.Event()
            self._back.append(turn)
        self.start_due()
        if not returned.wait(LONGEST):
            self._withdraw(turn)

    def _withdraw(self, turn: _Turn) -> None:
        with self._lock:
            if turn in self._back:
                self._back.remove(turn)

    def _work(self, turn: _Turn | None) -> None:
        """One turn after the other: to go on in this thread costs less than to wake another one."""
        while turn:
            begin = self._cpu()
            turn.run()
            self._usage.add(turn.client, self._cpu() - begin)
            self._end(turn)
            turn = self._next()

    def _begins_alone(self, turn: _Turn) -> bool:
        """Whether *turn* has nothing to wait for, and no other one waits."""
        with self._lock:
            if self._lines or self._back or self._is_full():
                return False
            self._running[turn] = self._clock()
        return True

    def _end(self, turn: _Turn) -> None:
        if turn in self._running:
            with self._lock:
                self._running.pop(turn, None)

    def _next(self) -> _Turn | None:
        """One to begin; those that are back from a wait go on in their threads."""
        while (turn := self._take()) and turn.returned:
            turn.returned.set()
        return turn

    def _take(self) -> _Turn | None:
        if not (self._lines or self._back):
            return None
        with self._lock:
            if not (self._lines or self._back) or self._is_full():
                return None
            turn = self._back.popleft() if self._back else self._first()
            self._running[turn] = self._clock()
        return turn

    def _first(self) -> _Turn:
        client = min(self._lines, key=self._usage.of)
        line = self._lines[client]
        turn = line.popleft()
        if not line:
            del self._lines[client]
        return turn

    def _is_full(self) -> bool:
        if len(self._running) < self._turns:
            return False
        begun = self._clock() - LONGEST
        self._running = {turn: since for turn, since in self._running.items() if since > begun}
        return len(self._running) >= self._turns


class _Turn:
    """A job, and when it runs, the turn that it has."""

    def __init__(self, queue: FairQueue, client: Hashable, job: Callable[[], Any]) -> None:
        self.client, self.done = client, futures.Future[Any]()
        self.returned: threading.Event | None = None
        """Set when it may go on after a wait."""
        self._queue, self._job = queue, job

    def run(self) -> None:
        try:
            with taking(self):
                result = self._job()
        except BaseException as error:
            self.done.set_exception(error)
        else:
            self.done.set_result(result)

    def leave(self) -> None:
        self._queue.leave(self)

    def resume(self) -> None:
        self._queue.resume(self)
