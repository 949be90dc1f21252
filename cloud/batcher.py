"""Batch requests of many callers into few calls; each caller awaits its own answer, and only its own error."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import structlog

from cloud.circuit_breaker import CircuitBreaker
from cloud.errors import ITEM_REFUSED, PERHAPS_FOR_ALL
from cloud.paging import in_halves
from runtime import futures, threading, time

K = TypeVar("K")
V = TypeVar("V")

log = structlog.stdlib.get_logger(__name__)


class Pending(futures.Future[V]):
    """A future that a coroutine can await; the coroutine yields it while it is not done."""

    def __await__(self) -> Generator[Pending[V], None, V]:
        if not self.done():
            yield self
        return self.result()


@dataclass(frozen=True)
class Shape:
    """Up to *size* requests share a call, and *senders* calls run at a time.

    A batch that is not full starts *distance* seconds after the one before at the earliest, the first one at once.
    """

    size: int = 1
    senders: int = 1
    distance: float = 0.0


@dataclass(frozen=True)
class _Request(Generic[K, V]):
    key: str
    item: K
    answer: Pending[V] = field(default_factory=Pending)


class Batcher(Generic[K, V]):
    """Safe to share between threads.

    *call* has one answer or error for each item, in order, or raises. An error that may concern one item only divides
    the batch until that item stands alone.
    """

    def __init__(
        self,
        name: str,
        call: Callable[[Sequence[K]], Sequence[V | Exception]],
        shape: Shape,
        breaker: CircuitBreaker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self._call, self._shape = name, call, shape
        self._breaker, self._clock = breaker, clock
        self._waiting: deque[_Request[K, V]] = deque()
        self._free_at, self._closed = -math.inf, False
        self._since: dict[int, float] = {}
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []

    def submit(self, key: str, item: K) -> Pending[V]:
        """The answer to come; *key* distinguishes callers when some are refused."""
        request: _Request[K, V] = _Request(key, item)
        request.answer.set_running_or_notify_cancel()
        with self._changed:
            self._waiting.append(request)
            self._changed.notify()
        return request.answer

    def start(self) -> None:
        for number in range(self._shape.senders):
            name = f"{self.name}-{number}"
            self._threads.append(threading.Thread(target=self._run, args=(number,), name=name, daemon=True))
            self._threads[-1].start()

    def close(self) -> None:
        """Finish the calls that are under way; what waits is never sent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    @property
    def due(self) -> float:
        """When the next batch may go, on the clock."""
        with self._changed:
            return self._due()

    def step(self) -> bool:
        """Send one batch if one is due."""
        with self._changed:
            batch = self._take()
        if batch:
            self._send(batch)
        return bool(batch)

    def longest_running(self) -> float:
        began = list(self._since.values())
        return self._clock() - min(began) if began else 0.0

    def _run(self, number: int) -> None:
        while batch := self._next():
            self._since[number] = self._clock()
            try:
                self._send(batch)
            except BaseException as error:
                # Also SystemExit: callers wait for this thread.
                log.exception("batch failed", batcher=self.name)
                for request in batch:
                    if not request.answer.done():
                        request.answer.set_exception(error)
            finally:
                del self._since[number]

    def _next(self) -> Sequence[_Request[K, V]]:
        with self._changed:
            while not self._closed:
                if batch := self._take():
                    return batch
                due = self._due()
                self._changed.wait(None if due == math.inf else max(0.0, due - self._clock()))
        return ()

    def _due(self) -> float:
        if not self._waiting:
            return math.inf
        return -math.inf if len(self._waiting) >= self._shape.size else self._free_at

    def _take(self) -> Sequence[_Request[K, V]]:
        now = self._clock()
        if self._due() > now:
            return ()
        self._free_at = now + self._shape.distance
        return [self._waiting.popleft() for _ in range(min(self._shape.size, len(self._waiting)))]

    def _send(self, batch: Sequence[_Request[K, V]]) -> None:
        admitted = []
        for request in batch:
            if later := self._breaker.admit(request.key):
                request.answer.set_exception(later)
            else:
                admitted.append(request)
        if admitted:
            for request, answer in zip(admitted, self._answers(admitted), strict=True):
                self._resolve(request, answer)

    def _answers(self, requests: Sequence[_Request[K, V]]) -> Sequence[V | Exception]:
        answers: dict[int, V | Exception] = {}

        def call(some: Sequence[int]) -> None:
            answers.update(zip(some, self._call([requests[each].item for each in some]), strict=True))

        everyone = range(len(requests))
        try:
            answers.update(in_halves(call, everyone, ITEM_REFUSED, general=PERHAPS_FOR_ALL))
        except Exception as error:
            return [answers.get(each, error) for each in everyone]
        return [answers[each] for each in everyone]

    def _resolve(self, request: _Request[K, V], answer: V | Exception) -> None:
        if isinstance(answer, PERHAPS_FOR_ALL):
            request.answer.set_exception(self._breaker.refused(request.key, answer))
        elif isinstance(answer, Exception):
            request.answer.set_exception(answer)
        else:
            self._breaker.served(request.key)
            request.answer.set_result(answer)


class Turns:
    """Let *limit* callers at a time decide and act; the others wait in line, and decide when it is their turn.

    So what is sent at a slow pace was decided shortly before, however long the line is.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._line: deque[Pending[None]] = deque()
        self._lock = threading.Lock()

    def take(self) -> Pending[None]:
        """To be awaited; `cancel` leaves the line."""
        turn: Pending[None] = Pending()
        with self._lock:
            if self._left > 0:
                self._left -= 1
                turn.set_result(None)
            else:
                self._line.append(turn)
        return turn

    def give_back(self) -> None:
        with self._lock:
            while self._line:
                turn = self._line.popleft()
                if turn.set_running_or_notify_cancel():
                    break
            else:
                self._left += 1
                return
        turn.set_result(None)
