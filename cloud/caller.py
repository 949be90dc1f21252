"""Make one call: in its turn, within its deadline, repeated where that is safe, and counted."""

# ruff: noqa: A002 (``type`` reads best)

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Protocol, TypeVar

import structlog
from prometheus_client import Counter, Histogram

from cloud import retry
from cloud.apis import Api
from cloud.errors import CloudError, Throttled
from cloud.rate_limiter import RateLimiter

log = structlog.stdlib.get_logger(__name__)
T = TypeVar("T")
LEAST = 1.0
"""Seconds that must be left to send a call at all: one that is cut short leaves its outcome in doubt."""

CALLS = Counter("drawbridge_cloud_calls", "Caller to the cloud, each repetition too.", ["api", "result"])
SECONDS = Histogram("drawbridge_cloud_call_seconds", "From sending a call to its whole answer.", ["api"])


class Sends(Protocol):
    """`cloud.transport.Transport`, or what stands in for it."""

    def call(self, api: Api, params: Mapping[str, object], type: type[T], timeout: float) -> T: ...


@dataclass(frozen=True)
class Timeouts:
    """Seconds, of a *call* with all its waiting and repeating, and of each *attempt*."""

    call: float
    attempt: float


@dataclass(frozen=True)
class Before:
    """Before an attempt, after all waiting: *keys* gets what signing needs, then *may_write* is asked if it changes
    something; it raises when that must not happen any more."""

    may_write: Callable[[], object]
    keys: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Timing:
    """*sleep* may raise to end a wait."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    chance: Callable[[], float] = random.random


class Caller:
    """Safe to share between threads."""

    def __init__(
        self,
        transport: Sends,
        limiter: RateLimiter,
        timeouts: Timeouts,
        before: Before,
        timing: Timing = Timing(),
    ) -> None:
        self._transport, self._limiter, self._timeouts, self._before = transport, limiter, timeouts, before
        self._clock, self._sleep, self._chance = timing.clock, timing.sleep, timing.chance
        self._least = min(LEAST, timeouts.call / 10)

    def call(self, api: Api, params: Mapping[str, object], type: type[T]) -> T:
        """The answer, or the CloudError of the last attempt: of an earlier one if that one's outcome stays open."""
        deadline = self._clock() + self._timeouts.call
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
            self._before.may_write()
        timeout = min(self._timeouts.attempt, max(0.001, deadline - self._clock()))
        with _failures_counted(api), SECONDS.labels(api.action).time():
            answer = self._transport.call(api, params, type, timeout)
        CALLS.labels(api.action, "success").inc()
        return answer

    def _prepare(self, api: Api, deadline: float) -> None:
        with _failures_counted(api):
            self._before.keys()
        if not self._limiter.wait(api, deadline - self._least):
            raise Throttled(
                "OwnLimit", "there was no turn at our share of the rate in time", action=api.action
            )

    def _pause_or_raise(
        self, error: CloudError, final: CloudError, attempt: int, api: Api, deadline: float
    ) -> None:
        """Wait before the next attempt after *error*, or raise *final* when there is to be none."""
        delay = retry.delay(error, attempt, repeatable=api.repeatable, chance=self._chance())
        if delay is None or self._clock() + delay >= deadline - self._least:
            raise final
        log.debug("a call to the cloud is repeated", api=api.action, code=error.code, attempt=attempt)
        self._sleep(delay)


@contextmanager
def _failures_counted(api: Api) -> Iterator[None]:
    try:
        yield
    except CloudError as error:
        CALLS.labels(api.action, error.result()).inc()
        raise
