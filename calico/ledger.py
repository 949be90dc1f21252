"""Reservations are durable when :meth:`Ledger.reserve` returns; many callers share one write.

Requests that come while a write is under way wait together for the next one (group commit), and in a storm for a
moment longer, so that it costs tens of writes. A write takes as many of them as the segment has room for; they are
answered at once, and the others go first into the next. Only their own deadlines end their wait. Each process appends
to segments of its own, one after the other, and every write is guarded by the resourceVersion it was decided on: what
others changed meanwhile is read again, never overwritten. A repeated append changes nothing but a timestamp, so a
write whose answer was lost is repeated.
"""

from __future__ import annotations

import math
import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client import Counter, Histogram

from calico.errors import NotReserved, NotServed
from calico.reservations import Store
from calico.segment import IPReservation, Limits, Record, append
from kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)

WRITES = Counter("drawbridge_reservation_writes", "Attempts to write an IPReservation segment.", ["result"])
BATCH = Histogram(
    "drawbridge_reservation_batch_size",
    "Requests made durable together.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128),
)

GATHER, MANY, LOOK = 0.2, 24, 0.01
"""In a storm, seconds after a write before the next one begins, and how many that come meanwhile are enough for it.

A write costs the API server its whole segment, so a few more requests in it save more than they wait. To look how
many there are, now and then, spares a switch of threads for each.
"""
CALL_TIMEOUT = 4.0
PAUSE = 0.1
PASSING = (Unreachable, ServerError, TooManyRequests)


@dataclass(eq=False)
class _Ticket:
    """One request: *records* are those that are not durable yet; *done* is cancelled when it is withdrawn."""

    records: Sequence[Record]
    deadline: float
    done: Future[IPReservation]

    def written(self, segment: IPReservation) -> None:
        # It may be withdrawn in this very moment; then its address is reserved for a pod that stays, for a while.
        with suppress(InvalidStateError):
            self.done.set_result(segment)

    def failed(self, error: Exception) -> None:
        failure = NotReserved(f"Calico's IPReservation could not be written: {error}")
        failure.__cause__ = error
        with suppress(InvalidStateError):
            self.done.set_exception(failure)


@dataclass
class _Current:
    """The segment that is being filled, as last seen; nothing was seen of it before it is created."""

    name: str
    since: float
    seen: IPReservation | None = None
    stale: bool = False


class Ledger:
    """The segments that this process fills, named after *owner*; one older than *max_age* seconds is left alone."""

    def __init__(
        self,
        store: Store,
        owner: str,
        *,
        limits: Callable[[], Limits] = Limits,
        max_age: Callable[[], float] = lambda: 600.0,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store, self._owner = store, owner
        self._limits, self._max_age = limits, max_age
        self._clock, self._pause = clock, pause
        self._tickets: queue.SimpleQueue[_Ticket] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._writer: threading.Thread | None = None
        self._rested = -math.inf
        self._current = self._new()

    def reserve(self, records: Sequence[Record], deadline: float) -> IPReservation:
        """Return once *records* are durable, or raise NotReserved by *deadline*, in seconds of the clock.

        The segment that has them, or the last of them.
        """
        self._ensure_writer()
        ticket = _Ticket(records, deadline, Future())
        self._tickets.put(ticket)
        try:
            return ticket.done.result(timeout=max(0.0, deadline - self._clock()))
        except FutureTimeoutError:
            ticket.done.cancel()
            raise NotReserved("Calico's IPReservation was not written within the deadline") from None

    def _ensure_writer(self) -> None:
        # Started on first use: a thread of the parent would not survive gunicorn's fork.
        with self._starting:
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_batches, name="ledger", daemon=True)
                self._writer.start()

    def _write_batches(self) -> None:
        waiting: Sequence[_Ticket] = ()
        while True:
            waiting = self._attempt(self._gather(waiting))

    def _gather(self, waiting: Sequence[_Ticket]) -> Sequence[_Ticket]:
        """What the last write left over, and all that has come since; blocks until there is something."""
        batch = [*waiting] or [self._tickets.get()]
        while self._clock() < self._rested and len(batch) + self._tickets.qsize() < MANY:
            self._pause(LOOK)
        while not self._tickets.empty():
            batch.append(self._tickets.get())
        return [each for each in batch if not each.done.cancelled()]

    def _attempt(self, batch: Sequence[_Ticket]) -> Sequence[_Ticket]:
        """One write for as many of *batch* as it takes; those that still wait."""
        if not batch:
            return ()
        records = [record for ticket in batch for record in ticket.records]
        left = max(ticket.deadline for ticket in batch) - self._clock()
        try:
            segment, written = self._append(records, max(PAUSE, min(CALL_TIMEOUT, left)))
        except (KubeError, NotServed) as error:
            WRITES.labels("failed").inc()
            return self._after(error, batch)
        except Exception as error:
            return _fail(batch, error)
        return self._answer(batch, segment, written)

    def _answer(
        self, batch: Sequence[_Ticket], segment: IPReservation | None, written: int
    ) -> Sequence[_Ticket]:
        """Answer those of which all are among the first *written* records; the others."""
        waiting = []
        for ticket in batch:
            own = len(ticket.records)
            ticket.records, written = ticket.records[written:], max(0, written - own)
            if segment is None or ticket.records:
                waiting.append(ticket)
            else:
                ticket.written(segment)
        if len(waiting) < len(batch):
            BATCH.observe(len(batch) - len(waiting))
            # A single request never waits, nor does one client that deletes pod by pod.
            self._rested = self._clock() + GATHER if len(batch) > 1 else -math.inf
        return waiting

    def _after(self, error: Exception, batch: Sequence[_Ticket]) -> Sequence[_Ticket]:
        """Get ready for another attempt after what may pass; those that have the time for it."""
        soon = self._clock() + PAUSE
        waiting = [each for each in batch if each.deadline > soon]
        _fail([each for each in batch if each.deadline <= soon], error)
        latest = max((each.deadline for each in waiting), default=soon)
        return waiting if self._recover(error, latest) else _fail(waiting, error)

    def _append(self, records: Sequence[Record], timeout: float) -> tuple[IPReservation | None, int]:
        """Write as many of *records* as the current segment takes; the segment, and how many those were."""
        current = self._current = self._usable()
        if current.stale:
            current.seen, current.stale = self._store.get(current.name, timeout=timeout), False
        held, left = append(current.seen.records if current.seen else (), records, self._limits())
        if current.seen is None:
            current.seen = self._store.create(current.name, held, timeout=timeout)
            WRITES.labels("written").inc()
        elif left != records:
            current.seen = self._store.write(current.seen, held, timeout=timeout)
            WRITES.labels("written").inc()
        if left:
            self._current = self._new()
        return current.seen, len(records) - len(left)

    def _usable(self) -> _Current:
        aged = self._clock() - self._current.since > self._max_age()
        return self._new() if aged and self._current.seen else self._current

    def _new(self) -> _Current:
        return _Current(f"{self._owner}-{secrets.token_hex(4)}", self._clock())

    def _recover(self, error: Exception, deadline: float) -> bool:
        """Get ready for another attempt, if *error* may pass."""
        if isinstance(error, (Conflict, AlreadyExists)):
            self._current.stale = True
        elif isinstance(error, NotFound):
            self._current = self._new()
            self._pause(PAUSE)
        elif isinstance(error, PASSING):
            self._pause(_asked_for(error, deadline - self._clock()))
        else:
            return False
        return True


def _fail(batch: Sequence[_Ticket], error: Exception) -> Sequence[_Ticket]:
    """Refuse all of *batch*; none of them waits any longer."""
    for each in batch:
        each.failed(error)
    return ()


def _asked_for(error: Exception, left: float) -> float:
    """Seconds to leave the server alone: what it asks for, but so that of those *left* half remain to try again."""
    asked = error.retry_after if isinstance(error, ApiError) else None
    return max(PAUSE, min(asked or PAUSE, left / 2))
