"""Reservations are durable when :meth:`Ledger.reserve` returns; many callers share one write.

A batch is what is queued when a writer is free. It becomes one segment under a new name: nothing is read first, no
other write conflicts with it, and nothing is added later. A write of which it is unknown whether it succeeded is
repeated under the same name, with the same records, while one of its requests has time; that the name exists then
means success. A batch that the leader has compacted meanwhile is so created again, and compacted again. A write that
was refused for certain is repeated with all that came since.

While all writers are busy, requests gather: the slower the API server, the fewer and larger its writes.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client import Counter, Histogram

from calico.reservations import NotServed, Reservations
from calico.segment import SIZE, IPReservation, NotReserved, Record, pages, size_of
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
from kube.types import ObjectMeta
from settings import IPReservationSettings

WRITES = Counter("drawbridge_reservation_writes", "Attempts to create an IPReservation segment.", ["result"])
BATCH = Histogram(
    "drawbridge_reservation_batch_size",
    "Requests made durable together.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128),
)

WRITERS = 2
"""Writes at once: with more, batches are smaller and the API server has more to do."""
CALL_TIMEOUT = 4.0
PAUSE = 0.1
UNKNOWN = (Unreachable, ServerError)
"""The write may have been carried out, or be so later."""
PASSING = (*UNKNOWN, TooManyRequests, Conflict, AlreadyExists, NotFound)
"""Worth another attempt. NotFound: the group that was served is gone, and another one is looked for."""


@dataclass(eq=False)
class _Ticket:
    """One request: *records* are not durable yet; *done* is cancelled when it is withdrawn.

    It may be withdrawn while it is written; its address is then reserved for a pod that stays, for a while.
    """

    records: Sequence[Record]
    deadline: float
    done: Future[IPReservation]

    @property
    def waits(self) -> bool:
        return not self.done.done()


class Ledger:
    """Creates segments named after *owner*; the settings limit their entries."""

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
        self._tickets: deque[_Ticket] = deque()
        self._queued = threading.Condition()
        self._writers: list[threading.Thread] = []

    def reserve(self, records: Sequence[Record], deadline: float) -> IPReservation:
        """Return once *records* are durable, or raise NotReserved by *deadline*, in seconds of the clock.

        The segment that has them, or the last of them.
        """
        limit = self._settings().segment_max_entries
        tickets = [_Ticket(page, deadline, Future()) for page in pages(records, limit)]
        self._queue(tickets)
        try:
            written = [each.done.result(timeout=max(0.0, deadline - self._clock())) for each in tickets]
        except FutureTimeoutError:
            raise NotReserved("Calico's IPReservation was not written within the deadline") from None
        finally:
            for each in tickets:
                each.done.cancel()
        return written[-1]

    def _queue(self, tickets: Sequence[_Ticket], *, first: bool = False) -> None:
        with self._queued:
            # Started on first use: a thread of the parent would not survive gunicorn's fork.
            while len(self._writers) < WRITERS:
                writer = threading.Thread(target=self._write_batches, name="ledger", daemon=True)
                self._writers.append(writer)
                writer.start()
            if first:
                self._tickets.extendleft(reversed(tickets))
            else:
                self._tickets.extend(tickets)
            self._queued.notify(len(tickets))

    def _write_batches(self) -> None:
        while True:
            self._write(self._next_batch())

    def _next_batch(self) -> Sequence[_Ticket]:
        """As many of the queued requests as one segment takes; blocks until there is one."""
        batch: list[_Ticket] = []
        entries, size = self._settings().segment_max_entries, SIZE
        with self._queued:
            self._queued.wait_for(lambda: self._tickets)
            self._tickets = deque(each for each in self._tickets if each.waits)
            while self._tickets:
                records = self._tickets[0].records
                entries, size = entries - len(records), size - size_of(records)
                if batch and min(entries, size) < 0:
                    break
                batch.append(self._tickets.popleft())
        return batch

    def _write(self, batch: Sequence[_Ticket]) -> None:
        """Create a segment for *batch*, again and again while it may exist and one of the requests has time.

        What is refused for certain is queued again, to share the next write with those that came meanwhile.
        """
        records = [record for ticket in batch for record in ticket.records]
        name, may_exist = f"{self._owner}-{secrets.token_hex(8)}", False
        while batch:
            try:
                segment = self._create(name, records, batch, may_exist=may_exist)
            except (KubeError, NotServed) as error:
                batch, may_exist = self._after(error, batch), may_exist or isinstance(error, UNKNOWN)
                if not may_exist:
                    self._queue(batch, first=True)
                    return
            except Exception as error:
                _fail(batch, error)
                return
            else:
                _answer(batch, segment)
                return

    def _create(
        self, name: str, records: Sequence[Record], batch: Sequence[_Ticket], *, may_exist: bool
    ) -> IPReservation:
        left = max(ticket.deadline for ticket in batch) - self._clock()
        try:
            return self._store.create(name, records, timeout=max(PAUSE, min(CALL_TIMEOUT, left)))
        except AlreadyExists:
            if not may_exist:
                raise
            return IPReservation(ObjectMeta(name=name))

    def _after(self, error: Exception, batch: Sequence[_Ticket]) -> Sequence[_Ticket]:
        """Pause when *error* may pass; returns the requests that have time for another attempt."""
        WRITES.labels("failed").inc()
        if not isinstance(error, PASSING):
            _fail(batch, error)
            return ()
        soon = self._clock() + PAUSE
        _fail([each for each in batch if each.deadline <= soon], error)
        waiting = [each for each in batch if each.waits]
        if waiting:
            self._pause(_asked_for(error, max(each.deadline for each in waiting) - self._clock()))
        return waiting


def _answer(batch: Sequence[_Ticket], segment: IPReservation) -> None:
    WRITES.labels("written").inc()
    BATCH.observe(len(batch))
    for each in batch:
        with suppress(InvalidStateError):
            each.done.set_result(segment)


def _fail(batch: Sequence[_Ticket], error: Exception) -> None:
    for each in batch:
        failure = NotReserved(f"Calico's IPReservation could not be written: {error}")
        failure.__cause__ = error
        with suppress(InvalidStateError):
            each.done.set_exception(failure)


def _asked_for(error: Exception, left: float) -> float:
    """Seconds to pause: what the server asks for, but at most half of those *left*."""
    asked = error.retry_after if isinstance(error, ApiError) else None
    return max(PAUSE, min(asked or PAUSE, left / 2))
