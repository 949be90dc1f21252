"""Reservations are durable when :meth:`Ledger.reserve` returns; many callers share one write.

A request that comes when no write is under way is written by its caller; the others as batches: what is queued when a
write ends, or when it takes long. A batch becomes one segment under a new name: nothing is read first, no other write
conflicts with it, and nothing is added later. A write of which it is unknown whether it succeeded is repeated under the
same name, with the same records, while one of its requests has time; that the name exists then means success. A batch
that the leader has compacted meanwhile is so created again, and compacted again. A write that was refused for certain
is repeated with all that came since.

During a write, requests gather: the slower the API server, the fewer and larger its writes. Where it is fast, the next
write waits a moment after one that requests shared; a request that is alone waits for nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from prometheus_client import Counter, Histogram

from calico.reservations import NotServed, Reservations, new_name
from calico.segment import ENTRIES, SIZE, IPReservation, NotReserved, Record, size_of
from kube.errors import (
    AlreadyExists,
    Conflict,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
    asked_pause,
)
from kube.types import ObjectMeta
from kube.waiting import give_up
from runtime import futures, threading, time

WRITES = Counter("drawbridge_reservation_writes", "Attempts to create an IPReservation segment.", ["result"])
BATCH = Histogram(
    "drawbridge_reservation_batch_size",
    "Requests made durable together.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128),
)

WRITERS, LONG = 2, 0.25
"""Writes at once, and after how many seconds a request no longer waits for the end of another write.

With more writes, batches are smaller, and the API server has more to do; a write that hangs must not hold up others.
"""
GATHER, MOST, TIMES = 0.02, 0.1, 8
"""Seconds between the beginnings of two writes for each request of the first one but one, and at most; and at most so
many times what the first one took.

Each write costs the API server more than a request does, and as much again when its segment is deleted. Requests that
come at a lower rate than one in so many seconds are soon alone again.
"""
CALL_TIMEOUT, SHORT_CALL = 4.0, 1.0
"""Seconds of one write at most, and what it may take though it is more than half of what its requests have left.

Half of it stays for another write when one hangs.
"""
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
    done: futures.Future[IPReservation]
    since: float = -math.inf

    @property
    def waits(self) -> bool:
        return not self.done.done()


class Ledger:
    """Creates segments named after *owner*."""

    def __init__(
        self,
        store: Reservations,
        owner: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store, self._owner = store, owner
        self._clock, self._pause = clock, pause
        self._tickets: deque[_Ticket] = deque()
        self._queued = threading.Condition()
        self._writers: list[threading.Thread] = []
        self._writing = 0
        self._gathers_until = -math.inf

    def reserve(self, records: Sequence[Record], deadline: float) -> IPReservation:
        """The segment that has *records*, which one must have room for, once they are durable.

        Raises NotReserved by *deadline*, in seconds of the clock.
        """
        ticket = _Ticket(records, deadline, futures.Future(), self._clock())
        if self._begins_alone():
            self._write_one([ticket])  # in this thread: it would only wait for another one
        else:
            self._queue([ticket])
        try:
            if not ticket.waits:
                return ticket.done.result()
            give_up()
            return ticket.done.result(timeout=max(0.0, deadline - self._clock()))
        except futures.TimeoutError:
            raise NotReserved("Calico's IPReservation was not written within the deadline") from None
        finally:
            ticket.done.cancel()

    def _queue(self, tickets: Sequence[_Ticket], *, first: bool = False) -> None:
        with self._queued:
            # Started on first use: a thread of the parent would not survive gunicorn's fork.
            while len(self._writers) < WRITERS:
                writer = threading.Thread(target=self._write_batches, name="ledger", daemon=True)
                self._writers.append(writer)
                writer.start()
            if not self._tickets:  # else a writer knows already when the next write is due
                self._queued.notify()
            if first:
                self._tickets.extendleft(reversed(tickets))
            else:
                self._tickets.extend(tickets)

    def _begins_alone(self) -> bool:
        """Whether a request has nothing to wait for, and none to share its write with."""
        with self._queued:
            alone = not (self._writing or self._tickets) and self._clock() >= self._gathers_until
            self._writing += alone
        return alone

    def _write_batches(self) -> None:
        while True:
            self._write_one(self._next_batch())

    def _write_one(self, batch: Sequence[_Ticket]) -> None:
        """Write what has been counted in `_writing`."""
        began = self._clock()
        self._write(batch)
        took = self._clock() - began
        with self._queued:
            self._writing -= 1
            self._gathers_until = began + min(MOST, GATHER * (len(batch) - 1), TIMES * took)
            if self._tickets:
                self._queued.notify()

    def _next_batch(self) -> Sequence[_Ticket]:
        """As many of the queued requests as one segment takes; blocks until there is one."""
        batch: list[_Ticket] = []
        entries, size = ENTRIES, SIZE
        with self._queued:
            while (due := self._due()) != 0:
                self._queued.wait(due)
            self._writing += 1
            self._tickets = deque(ticket for ticket in self._tickets if ticket.waits)
            while self._tickets:
                records = self._tickets[0].records
                entries, size = entries - len(records), size - size_of(records)
                if batch and min(entries, size) < 0:
                    break
                batch.append(self._tickets.popleft())
            if self._tickets:
                self._queued.notify()
        return batch

    def _due(self) -> float | None:
        """Seconds until the next write; None while nothing is queued, or until a write ends."""
        if not self._tickets or self._writing >= WRITERS:
            return None
        due = self._tickets[0].since + LONG if self._writing else self._gathers_until
        return max(0.0, due - self._clock())

    def _write(self, batch: Sequence[_Ticket]) -> None:
        """Create a segment for *batch*, again and again while it may exist and one of the requests has time.

        What is refused for certain is queued again, to share the next write with those that came meanwhile.
        """
        records = [record for ticket in batch for record in ticket.records]
        name, may_exist = new_name(self._owner), False
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
        limit = min(CALL_TIMEOUT, left, max(SHORT_CALL, left / 2))
        try:
            return self._store.create(name, records, timeout=max(PAUSE, limit))
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
        _fail([ticket for ticket in batch if ticket.deadline <= soon], error)
        left = [ticket for ticket in batch if ticket.waits]
        if left:
            give_up()
            self._pause(_asked_for(error, max(ticket.deadline for ticket in left) - self._clock()))
        return left


def _answer(batch: Sequence[_Ticket], segment: IPReservation) -> None:
    WRITES.labels("written").inc()
    BATCH.observe(len(batch))
    for ticket in batch:
        with suppress(futures.InvalidStateError):
            ticket.done.set_result(segment)


def _fail(batch: Sequence[_Ticket], error: Exception) -> None:
    for ticket in batch:
        failure = NotReserved(f"Calico's IPReservation could not be written: {error}")
        failure.__cause__ = error
        with suppress(futures.InvalidStateError):
            ticket.done.set_exception(failure)


def _asked_for(error: Exception, left: float) -> float:
    """Seconds to pause: what the server asks for, but at most half of those *left*."""
    return max(PAUSE, min(asked_pause(error), left / 2))


ADDRESS = "192.0.2.1"
"""Of TEST-NET-1 (RFC 5737): no pod has it, so nothing is kept from any pod."""
RELEASE_TIMEOUT = 5.0


def round_trip(store: Reservations, writer: str, namespace: str, now: datetime, seconds: float) -> str:
    """What went wrong within *seconds*, or nothing.

    The leader deletes the segment, which is empty then, in its next pass.
    """
    # Its time is over: a pass of the leader releases it, and counts it nowhere. Of no pod, it is not reserved again.
    over = datetime.min.replace(tzinfo=UTC)
    record = Record(f"{ADDRESS}/32", now, namespace, writer, reason="test", ended=over)
    try:
        segment = Ledger(store, writer).reserve([record], time.monotonic() + seconds)
    except NotReserved as error:
        return f"{ADDRESS} cannot be reserved: {error}"
    try:
        # A pass of the leader in between has released it.
        with suppress(Conflict, NotFound):
            store.write(segment, (), timeout=RELEASE_TIMEOUT)
    except (KubeError, NotServed) as error:
        return f"{ADDRESS} was reserved, and cannot be released: {error}"
    return ""
