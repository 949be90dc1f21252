"""Reservations are durable when :meth:`Ledger.reserve` returns; many callers share one write.

While a write is under way, whoever comes waits together for the next one (group commit), and in a storm for a
moment longer, so that it costs tens of writes. Each process appends to segments of its own, one after the
other, and every write is guarded by the resourceVersion it was decided on: what others changed meanwhile is
read again, never overwritten. A repeated append changes nothing but a timestamp, so a write whose answer was
lost is repeated.
"""

from __future__ import annotations

import math
import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import NamedTuple

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


class _Ticket(NamedTuple):
    records: Sequence[Record]
    deadline: float
    done: Future[None]


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

    def reserve(self, records: Sequence[Record], deadline: float) -> None:
        """Return once *records* are durable, or raise NotReserved by *deadline*, in seconds of the clock."""
        self._ensure_writer()
        ticket = _Ticket(records, deadline, Future())
        self._tickets.put(ticket)
        try:
            ticket.done.result(timeout=max(0.0, deadline - self._clock()))
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
        while True:
            wanted = [each for each in self._gather() if each.done.set_running_or_notify_cancel()]
            if wanted:
                self._commit(wanted)
                # Who comes alone is never kept waiting, nor is one client that deletes pod by pod.
                self._rested = self._clock() + GATHER if len(wanted) > 1 else -math.inf

    def _gather(self) -> list[_Ticket]:
        batch = [self._tickets.get()]
        while self._clock() < self._rested and len(batch) + self._tickets.qsize() < MANY:
            self._pause(LOOK)
        while not self._tickets.empty():
            batch.append(self._tickets.get())
        return batch

    def _commit(self, batch: Sequence[_Ticket]) -> None:
        BATCH.observe(len(batch))
        records = [record for ticket in batch for record in ticket.records]
        try:
            self._append_all(records, max(ticket.deadline for ticket in batch))
        except Exception as error:
            failure = NotReserved(f"Calico's IPReservation could not be written: {error}")
            failure.__cause__ = error
            for ticket in batch:
                ticket.done.set_exception(failure)
        else:
            for ticket in batch:
                ticket.done.set_result(None)

    def _append_all(self, records: Sequence[Record], deadline: float) -> None:
        while records:
            try:
                records = self._append(records, max(PAUSE, min(CALL_TIMEOUT, deadline - self._clock())))
                WRITES.labels("written").inc()
            except (KubeError, NotServed) as error:
                WRITES.labels("failed").inc()
                if self._clock() + PAUSE >= deadline:
                    raise
                self._recover(error, deadline)

    def _append(self, records: Sequence[Record], timeout: float) -> Sequence[Record]:
        """Write as many of *records* as the current segment takes; return the others."""
        current = self._current = self._usable()
        if current.stale:
            current.seen, current.stale = self._store.get(current.name, timeout=timeout), False
        held, left = append(current.seen.records if current.seen else (), records, self._limits())
        if current.seen is None:
            current.seen = self._store.create(current.name, held, timeout=timeout)
        elif left != records:
            current.seen = self._store.write(current.seen, held, timeout=timeout)
        if left:
            self._current = self._new()
        return left

    def _usable(self) -> _Current:
        aged = self._clock() - self._current.since > self._max_age()
        return self._new() if aged and self._current.seen else self._current

    def _new(self) -> _Current:
        return _Current(f"{self._owner}-{secrets.token_hex(4)}", self._clock())

    def _recover(self, error: Exception, deadline: float) -> None:
        """Get ready for another attempt after what may pass; raise what will not."""
        if isinstance(error, (Conflict, AlreadyExists)):
            self._current.stale = True
        elif isinstance(error, NotFound):
            self._current = self._new()
            self._pause(PAUSE)
        elif isinstance(error, PASSING):
            self._pause(_asked_for(error, deadline - self._clock()))
        else:
            raise error


def _asked_for(error: Exception, left: float) -> float:
    """Seconds to leave the server alone: what it asks for, but so that of those *left* half remain to try again."""
    asked = error.retry_after if isinstance(error, ApiError) else None
    return max(PAUSE, min(asked or PAUSE, left / 2))
