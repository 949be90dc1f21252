"""Make one call: in its turn, within its deadline, repeated where that is safe, and counted."""

# ruff: noqa: A002 (``type`` reads best)

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Protocol, TypeVar

import structlog
from prometheus_client import Counter, Histogram

from cloud import retry
from cloud.apis import Api
from cloud.errors import CloudError, Throttled
from cloud.rate_limiter import Limits

log = structlog.stdlib.get_logger(__name__)
T = TypeVar("T")
LEAST = 1.0
"""Seconds that must be left to send a call at all: one that is cut short leaves its outcome in doubt."""

CALLS = Counter("drawbridge_cloud_calls", "Calls to the cloud, each repetition too.", ["api", "result"])
SECONDS = Histogram("drawbridge_cloud_call_seconds", "From sending a call to its whole answer.", ["api"])


class Sends(Protocol):
    """`cloud.transport.Transport`, or what stands in for it."""

    def call(self, api: Api, params: Mapping[str, object], type: type[T], timeout: float) -> T: ...


class Calls:
    """Safe to share between threads.

    *timeout* seconds are for a call with all its waiting and repeating, *attempt_timeout* for each
    time it is sent. *may_write* is asked each time right before something that changes the cloud is
    sent, after all waiting, and raises when that must not happen any more. *keys* is called ahead of that,
    so that whatever signing needs is at hand then. *sleep* may raise to end a wait.
    """

    def __init__(
        self,
        transport: Sends,
        limits: Limits,
        *,
        timeout: float,
        attempt_timeout: float,
        may_write: Callable[[], object],
        keys: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._transport, self._limits = transport, limits
        self._timeout, self._attempt_timeout = timeout, attempt_timeout
        self._may_write, self._keys = may_write, keys
        self._clock, self._sleep, self._chance = clock, sleep, chance
        self._least = min(LEAST, timeout / 10)

    def call(self, api: Api, params: Mapping[str, object], type: type[T]) -> T:
        """The answer, or the CloudError of the last attempt: of an earlier one if that one's outcome stays open."""
        deadline = self._clock() + self._timeout
        open_since: CloudError | None = None
        for attempt in count(1):
            try:
                return self._attempt(api, params, type, deadline)
            except CloudError as error:
                if api.writes:
                    open_since = retry.left_open(open_since, error)
                self._pause_or_raise(error, open_since or error, attempt, api, deadline)
        raise AssertionError("attempts are counted without end")

    def _attempt(self, api: Api, params: Mapping[str, object], type: type[T], deadline: float) -> T:
        self._prepare(api, deadline)
        if api.writes:
            self._may_write()
        timeout = min(self._attempt_timeout, max(0.001, deadline - self._clock()))
        with _failures_counted(api), SECONDS.labels(api.action).time():
            answer = self._transport.call(api, params, type, timeout)
        CALLS.labels(api.action, "success").inc()
        return answer

    def _prepare(self, api: Api, deadline: float) -> None:
        with _failures_counted(api):
            self._keys()
        if not self._limits.wait(api, deadline - self._least):
            raise Throttled(
                "OwnLimit", "there was no turn at our share of the rate in time", action=api.action
            )

    def _pause_or_raise(
        self, error: CloudError, told: CloudError, attempt: int, api: Api, deadline: float
    ) -> None:
        """Wait before the next attempt after *error*, or raise *told* when there is to be none."""
        delay = retry.delay(error, attempt, repeatable=api.repeatable, chance=self._chance())
        if delay is None or self._clock() + delay >= deadline - self._least:
            raise told
        log.debug("a call to the cloud is repeated", api=api.action, code=error.code, attempt=attempt)
        self._sleep(delay)


@contextmanager
def _failures_counted(api: Api) -> Iterator[None]:
    try:
        yield
    except CloudError as error:
        CALLS.labels(api.action, error.result()).inc()
        raise
