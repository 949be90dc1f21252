"""The cloud as one caller sees it: each verb waits for its answer, and shares its calls with those of other callers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cloud.client import FILTER_VALUES, PAGE, RELEASES, TAGS, Cloud, in_halves
from cloud.errors import (
    ITEM_REFUSED,
    PERHAPS_FOR_ALL,
    CloudError,
    Gone,
    NotPermitted,
    RetryAfter,
    StateConflict,
    TagMissing,
)
from cloud.types import Address, Order, Tag
from runtime import futures, threading

FIRST, LONGEST = 10.0, 300.0
"""Seconds between two attempts while a quota is used up or something is not permitted; they double."""
REFUSED_LATER = 1.0
"""Seconds by which callers that were refused themselves come after the others: not always the same one tries."""
PROBE = 30.0
"""Seconds within which the attempt for all is answered."""
ENOUGH = 2
"""So many different callers that are refused make a refusal one of all."""
KEPT = 3600.0


@dataclass
class _Refusal:
    """*own*: others were served meanwhile, so that it says nothing of them."""

    error: CloudError
    times: int = 0
    until: float = -math.inf
    own: bool = False


class CircuitBreaker:
    """A refusal is the caller's own until a second caller is refused; from then on one at a time tries for all.

    Safe to share between threads; *closed* is called when callers that were refused may try at once.
    """

    def __init__(self, clock: Callable[[], float], closed: Callable[[], None]) -> None:
        self._clock, self._closed = clock, closed
        self._refusals: dict[str, _Refusal] = {}
        self._times, self._until = 0, -math.inf
        self._error: CloudError | None = None
        self._probe = ""
        self._lock = threading.Lock()

    def admit(self, key: str) -> RetryAfter | None:
        """None when *key* may call; else when it may, and the refusal that it waits for."""
        with self._lock:
            now, mine = self._clock(), self._refusals.get(key)
            if self._error is None:
                return RetryAfter(mine.error, mine.until - now) if mine and mine.until > now else None
            due = self._until + (REFUSED_LATER if mine else 0.0)
            if due > now:
                return RetryAfter(self._error, due - now)
            self._probe, self._until = key, now + PROBE
            return None

    def refused(self, key: str, error: CloudError) -> RetryAfter:
        with self._lock:
            now = self._clock()
            mine = self._refusals.setdefault(key, _Refusal(error))
            mine.error, mine.times = error, mine.times + 1
            mine.own = mine.own and isinstance(error, NotPermitted)
            mine.until = now + _pause(mine.times)
            suspects = sum(not each.own for each in self._refusals.values())
            # One that was under way already says no more than the first.
            is_new = self._until <= now or key == self._probe or self._error is None
            if not mine.own and is_new and (self._error or suspects >= ENOUGH):
                self._times += 1
                self._error, self._probe = error, ""
                self._until = now + _pause(self._times)
            self._refusals = {k: each for k, each in self._refusals.items() if each.until > now - KEPT}
            until = mine.until if self._error is None else self._until + REFUSED_LATER
            return RetryAfter(error, until - now)

    def served(self, key: str) -> None:
        """The call is possible: a policy that refuses others is about them."""
        with self._lock:
            if not self._refusals and self._error is None:
                return
            was_open, self._error, self._times = self._error is not None, None, 0
            self._refusals.pop(key, None)
            again = [
                each
                for each in self._refusals.values()
                if was_open or not isinstance(each.error, NotPermitted)
            ]
            for each in self._refusals.values():
                each.own = True
            for each in again:
                each.times, each.until = 0, -math.inf
        if was_open or again:
            self._closed()

    def try_again(self) -> None:
        """Something has changed: the refused may try at once."""
        with self._lock:
            if not self._refusals and self._error is None:
                return
            self._until = -math.inf
            for each in self._refusals.values():
                each.until, each.times = -math.inf, 0
        self._closed()


def _pause(times: int) -> float:
    return float(min(LONGEST, FIRST * 2.0 ** min(times - 1, 10)))


K = TypeVar("K")
V = TypeVar("V")


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
    answer: futures.Future[V] = field(default_factory=futures.Future)


class Batcher(Generic[K, V]):
    """Safe to share between threads: of those who wait, the first one calls for all who share its call.

    *call* has one answer or error for each item, in order, or raises. An error that may concern one item only divides
    the batch until that item stands alone.
    """

    def __init__(
        self,
        call: Callable[[Sequence[K]], Sequence[V | Exception]],
        shape: Shape,
        breaker: CircuitBreaker,
        clock: Callable[[], float],
    ) -> None:
        self._call, self._shape, self._breaker, self._clock = call, shape, breaker, clock
        self._waiting: deque[_Request[K, V]] = deque()
        self._free_at, self._sending = -math.inf, 0
        self._changed = threading.Condition()

    def ask(self, item: K, key: str = "") -> V:
        """Wait for the answer; *key*, by default the item, distinguishes callers when some are refused."""
        return self.wait(self.submit(item, key))

    def submit(self, item: K, key: str = "") -> futures.Future[V]:
        """The answer to come, as `ask`."""
        request: _Request[K, V] = _Request(key or str(item), item)
        request.answer.set_running_or_notify_cancel()
        with self._changed:
            self._waiting.append(request)
            if len(self._waiting) == self._shape.size:
                self._changed.notify_all()
        return request.answer

    @property
    def due(self) -> float:
        """When the next batch may go, on the clock."""
        if not self._waiting or self._sending == self._shape.senders:
            return math.inf
        return -math.inf if len(self._waiting) >= self._shape.size else self._free_at

    def wait(self, answer: futures.Future[V]) -> V:
        """The result of *answer*, from `submit`; until it is there, this thread calls when it is its turn."""
        while batch := self._next(answer):
            self._send(batch)
        return answer.result()

    def _next(self, answer: futures.Future[V]) -> Sequence[_Request[K, V]]:
        """What to send, the caller's own request first; nothing once it has the *answer*."""
        with self._changed:
            while not answer.done():
                due = self.due if self._waiting and self._waiting[0].answer is answer else math.inf
                if due <= self._clock():
                    return self._take()
                self._changed.wait(None if due == math.inf else due - self._clock())
        return ()

    def _take(self) -> Sequence[_Request[K, V]]:
        self._free_at = self._clock() + self._shape.distance
        self._sending += 1
        self._changed.notify_all()  # another one is the first now
        return [self._waiting.popleft() for _ in range(min(self._shape.size, len(self._waiting)))]

    def _send(self, batch: Sequence[_Request[K, V]]) -> None:
        try:
            admitted = []
            for request in batch:
                if later := self._breaker.admit(request.key):
                    request.answer.set_exception(later)
                else:
                    admitted.append(request)
            for request, answer in zip(admitted, self._answers(admitted), strict=True):
                if isinstance(answer, PERHAPS_FOR_ALL):
                    request.answer.set_exception(self._breaker.refused(request.key, answer))
                elif isinstance(answer, Exception):
                    request.answer.set_exception(answer)
                else:
                    self._breaker.served(request.key)
                    request.answer.set_result(answer)
        except BaseException as error:
            # Also SystemExit: others wait for their answers.
            for request in batch:
                if not request.answer.done():
                    request.answer.set_exception(error)
            raise
        finally:
            with self._changed:
                self._sending -= 1
                self._changed.notify_all()

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


SENDERS = 12
"""Calls at a time of an API without batches: enough that none is missed at its rate."""
TAG_SENDERS = 4
"""Calls at a time, each with the tags of some nodes: as fast as they are taken."""


class BatchedCloud:
    """Safe to share between threads; *closed* is called when callers that were refused may try at once.

    A verb raises RetryAfter when it is refused by a policy or a limit, else a CloudError.
    """

    def __init__(self, cloud: Cloud, closed: Callable[[], None], clock: Callable[[], float]) -> None:
        self._cloud, self._closed, self._clock = cloud, closed, clock
        self._existing: set[Tag] = set()
        self._tagging = threading.Lock()
        alone = Shape(senders=SENDERS)
        self._quota = CircuitBreaker(clock, closed)
        self.address = self._batcher(_found(cloud.addresses), Shape(PAGE, distance=0.7)).ask
        """By its id; None when the cloud does not list it."""
        self.addresses_on = self._batcher(self._addresses_on, Shape(FILTER_VALUES, distance=0.3)).ask
        """All addresses of the instance, of any type."""
        self._instances = self._batcher(_found(cloud.instances), Shape(PAGE, distance=1.0))
        self.named = self._batcher(_each(cloud.addresses_named), alone).ask
        self._allocations = self._batcher(_each(self._allocate), alone, self._quota)
        self._binds = self._batcher(_each(self._associate), alone)
        self.disassociate = self._batcher(_each(cloud.disassociate), alone).ask
        self.release = self._batcher(self._release, Shape(RELEASES, distance=1.2)).ask
        """By its id; Gone also for an address of another account or region."""
        self._bandwidths = self._batcher(_each(self._set_bandwidth), alone)
        # Each node has two tags.
        self._new_tags = self._batcher(self._create_tags, Shape(TAGS // 2, TAG_SENDERS, distance=0.4))
        self._old_tags = self._batcher(self._delete_tags, Shape(TAGS // 2, TAG_SENDERS, distance=1.0))

    def instance_states(self, instances: Iterable[str]) -> list[str | None]:
        """None for each that the cloud does not list."""
        answers = [*map(self._instances.submit, instances)]
        for each in answers:
            # Also after a failure: only its own caller sends what is first in the queue.
            with suppress(Exception):
                self._instances.wait(each)
        return [each.result() for each in answers]

    def allocate(self, order: Order) -> str:
        """The id of this token's address, as `Cloud.allocate`."""
        return self._allocations.ask(order, order.name)

    def associate(self, address_id: str, instance: str) -> None:
        return self._binds.ask((address_id, instance), instance)

    def set_bandwidth(self, address_id: str, bandwidth: int) -> None:
        """In Mbps."""
        return self._bandwidths.ask((address_id, bandwidth), address_id)

    def has_tags(self, tags: Collection[Tag]) -> bool:
        """Whether this process has created them all; the cloud may have others."""
        with self._tagging:
            return self._existing.issuperset(tags)

    def create_tags(self, key: str, tags: Collection[Tag]) -> None:
        return self._new_tags.ask(tags, key)

    def delete_tags(self, key: str, tags: Collection[Tag]) -> Mapping[Tag, Gone | StateConflict]:
        """Returns those that something still carries, and those that this account does not have."""
        return self._old_tags.ask(tags, key)

    def _batcher(
        self,
        call: Callable[[Sequence[K]], Sequence[V | Exception]],
        shape: Shape,
        breaker: CircuitBreaker | None = None,
    ) -> Batcher[K, V]:
        breaker = breaker or CircuitBreaker(self._clock, self._closed)
        return Batcher(call, shape, breaker, self._clock)

    def _addresses_on(self, instances: Sequence[str]) -> Sequence[tuple[Address, ...]]:
        found = self._cloud.addresses_on(instances)
        return [tuple(each for each in found if each.instance_id == instance) for instance in instances]

    def _allocate(self, order: Order) -> str:
        try:
            return self._cloud.allocate(order)
        except TagMissing:
            with self._tagging:
                self._existing.difference_update(order.tags.items())
            raise

    def _associate(self, pair: tuple[str, str]) -> None:
        self._cloud.associate(*pair)

    def _release(self, ids: Sequence[str]) -> Sequence[None]:
        self._cloud.release(set(ids))
        self._quota.try_again()  # what was given back may be had again
        return [None for _ in ids]

    def _set_bandwidth(self, wanted: tuple[str, int]) -> None:
        self._cloud.set_bandwidth(*wanted)

    def _create_tags(self, wanted: Sequence[Collection[Tag]]) -> Sequence[None]:
        with self._tagging:
            tags = set[Tag]().union(*wanted) - self._existing
        self._cloud.create_tags(tags)
        with self._tagging:
            self._existing |= tags
        return [None for _ in wanted]

    def _delete_tags(
        self, unwanted: Sequence[Collection[Tag]]
    ) -> Sequence[Mapping[Tag, Gone | StateConflict]]:
        tags = set[Tag]().union(*unwanted)
        with self._tagging:
            self._existing -= tags
        refused = self._cloud.delete_tags(tags)
        return [{tag: refused[tag] for tag in each if tag in refused} for each in unwanted]


def _each(call: Callable[[K], V]) -> Callable[[Sequence[K]], Sequence[V]]:
    return lambda items: [call(each) for each in items]


def _found(call: Callable[[Sequence[K]], Mapping[K, V]]) -> Callable[[Sequence[K]], Sequence[V | None]]:
    def ask(items: Sequence[K]) -> Sequence[V | None]:
        found = call(items)
        return [found.get(each) for each in items]

    return ask
