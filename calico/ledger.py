"""Reservations are durable when :meth:`Ledger.reserve` returns; many callers share one write.

Requests that arrive during a write wait together for the next one (group commit), in a storm a moment longer. A write
takes as many as the segment has room for; the others are first in the next. Each process appends to separate segments,
one after the other, and every write is guarded by the resourceVersion it was decided on. A repeated append changes
only a timestamp, so a write whose answer was lost is repeated.
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

from calico.reservations import NotServed, Reservations
from calico.segment import IPReservation, NotReserved, Record, append
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
from settings import IPReservationSettings

WRITES = Counter("drawbridge_reservation_writes", "Attempts to write an IPReservation segment.", ["result"])
BATCH = Histogram(
    "drawbridge_reservation_batch_size",
    "Requests made durable together.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128),
)

GATHER, MANY, LOOK = 0.2, 24, 0.01
"""In a storm: seconds between two writes, how many requests end that pause early, and how often they are counted.

A write costs the API server the whole segment, so a few more requests in it save more than they wait.
"""
CALL_TIMEOUT = 4.0
PAUSE = 0.1
PASSING = (Unreachable, ServerError, TooManyRequests)


@dataclass(eq=False)
class _Ticket:
    """One request: *records* are not durable yet; *done* is cancelled when it is withdrawn.

    It may be withdrawn while it is written; its address is then reserved for a pod that stays, for a while.
    """

    records: Sequence[Record]
    deadline: float
    done: Future[IPReservation]


@dataclass
class _Current:
    """The segment that is being filled, as last *seen*; None before it is created."""

    name: str
    since: float
    seen: IPReservation | None = None
    stale: bool = False


class Ledger:
    """Fills segments named after *owner*; the settings limit their age and their entries."""

    def __init__(
        self,
        store: Reservations,
        owner: str,
        settings: Callable[[], IPReservationSettings] = IPReservationSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store, self._owner, self._settings = store, owner, settings
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
        """What the last write left over, and all requests since; blocks until there is one."""
        batch = [*waiting] or [self._tickets.get()]
        while self._clock() < self._rested and len(batch) + self._tickets.qsize() < MANY:
            self._pause(LOOK)
        while not self._tickets.empty():
            batch.append(self._tickets.get())
        return [each for each in batch if not each.done.cancelled()]

    def _attempt(self, batch: Sequence[_Ticket]) -> Sequence[_Ticket]:
        """One write for as many of *batch* as it takes; returns those that still wait."""
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

    def _answer(self, batch: Sequence[_Ticket], segment: IPReservation, written: int) -> Sequence[_Ticket]:
        """Answer the requests whose records are all among the first *written*; returns the others."""
        waiting = []
        for ticket in batch:
            own = len(ticket.records)
            ticket.records, written = ticket.records[written:], max(0, written - own)
            if ticket.records:
                waiting.append(ticket)
            else:
                with suppress(InvalidStateError):
                    ticket.done.set_result(segment)
        if len(waiting) < len(batch):
            BATCH.observe(len(batch) - len(waiting))
            # A single request never waits, nor does one client that deletes pod by pod.
            self._rested = self._clock() + GATHER if len(batch) > 1 else -math.inf
        return waiting

    def _after(self, error: Exception, batch: Sequence[_Ticket]) -> Sequence[_Ticket]:
        """Get ready for another attempt when *error* may pass; returns the requests that have time for it."""
        soon = self._clock() + PAUSE
        waiting = [each for each in batch if each.deadline > soon]
        _fail([each for each in batch if each.deadline <= soon], error)
        latest = max((each.deadline for each in waiting), default=soon)
        if isinstance(error, (Conflict, AlreadyExists)):
            self._current.stale = True
        elif isinstance(error, NotFound):
            self._current = self._new()
            self._pause(PAUSE)
        elif isinstance(error, PASSING):
            self._pause(_asked_for(error, latest - self._clock()))
        else:
            return _fail(waiting, error)
        return waiting

    def _append(self, records: Sequence[Record], timeout: float) -> tuple[IPReservation, int]:
        """Write as many of *records* as the current segment takes; returns the segment, and how many."""
        settings = self._settings()
        if self._current.seen and self._clock() - self._current.since > settings.segment_max_age:
            self._current = self._new()
        current = self._current
        if current.stale:
            current.seen, current.stale = self._store.get(current.name, timeout=timeout), False
        seen = current.seen
        held, left = append(seen.records if seen else (), records, settings.segment_max_entries)
        if seen is None:
            seen = self._store.create(current.name, held, timeout=timeout)
            WRITES.labels("written").inc()
        elif left != records:
            seen = self._store.write(seen, held, timeout=timeout)
            WRITES.labels("written").inc()
        current.seen = seen
        if left:
            self._current = self._new()
        return seen, len(records) - len(left)

    def _new(self) -> _Current:
        return _Current(f"{self._owner}-{secrets.token_hex(4)}", self._clock())


def _fail(batch: Sequence[_Ticket], error: Exception) -> Sequence[_Ticket]:
    """Refuse all of *batch*; returns none."""
    for each in batch:
        failure = NotReserved(f"Calico's IPReservation could not be written: {error}")
        failure.__cause__ = error
        with suppress(InvalidStateError):
            each.done.set_exception(failure)
    return ()


def _asked_for(error: Exception, left: float) -> float:
    """Seconds to pause: what the server asks for, but at most half of those *left*."""
    asked = error.retry_after if isinstance(error, ApiError) else None
    return max(PAUSE, min(asked or PAUSE, left / 2))
