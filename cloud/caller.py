"""Make one call: at our share of the rate, within its deadline, repeated only where that is safe, and counted."""

# ruff: noqa: A002 (``type`` reads best)

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import structlog
from prometheus_client import Counter, Histogram

from cloud.apis import Api
from cloud.errors import (
    CloudError,
    InProgress,
    NotPermitted,
    QuotaExceeded,
    Rejected,
    ServerFault,
    TagMissing,
    Throttled,
    Unavailable,
    Unreachable,
)
from cloud.transport import Transport
from runtime import random, threading, time
from settings import CloudSettings

log = structlog.stdlib.get_logger(__name__)
T = TypeVar("T")
LEAST = 1.0
"""Seconds that must be left to send a call at all: one that is cut short leaves its outcome in doubt."""
FIRST, LONGEST = 0.25, 4.0
"""Seconds; limits are counted by the second, so that the third delay is in the next one for certain."""

_NOT_CARRIED_OUT = (Throttled, Unreachable, InProgress)
_OUTCOME_UNKNOWN = (Unavailable, ServerFault)
_TURNED_AWAY = (Throttled, Unreachable, NotPermitted, QuotaExceeded, TagMissing, Rejected)
"""Refusals of a call that say nothing of an earlier one like it."""

CALLS = Counter("drawbridge_cloud_calls", "Caller to the cloud, each repetition too.", ["api", "result"])
SECONDS = Histogram("drawbridge_cloud_call_seconds", "From sending a call to its whole answer.", ["api"])


@dataclass(frozen=True)
class Timing:
    """*sleep* may raise to end a wait."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    chance: Callable[[], float] = random.random


class RateLimiter:
    """Hand out turns at even distances, in the order of asking.

    The cloud counts by the second; even distances never put more into any second, however it is cut.
    *share* is the part of the documented rate that is ours: people at the console and other clusters of
    the account draw on the same budget.
    """

    def __init__(self, share: float, timing: Timing) -> None:
        self._share, self._clock, self._sleep = share, timing.clock, timing.sleep
        self._lock = threading.Lock()
        self._next: dict[str, float] = {}

    def wait(self, api: Api, deadline: float) -> bool:
        """Wait for a turn; False at once, and no turn taken, when there is none before *deadline*."""
        with self._lock:
            now = self._clock()
            turn = max(now, self._next.get(api.action, now))
            if turn > deadline:
                return False
            self._next[api.action] = turn + 1 / (api.rate * self._share)
        if turn > now:
            self._sleep(turn - now)
        return True


class Caller:
    """Safe to share between threads.

    Before an attempt, after all waiting, *keys* gets what signing needs, then *may_write* is asked if it changes
    something; it raises when that must not happen any more. Such an attempt ends *writes_within* so many seconds.
    """

    def __init__(
        self,
        transport: Transport,
        settings: CloudSettings,
        writes_within: float,
        may_write: Callable[[], object],
        keys: Callable[[], object],
        timing: Timing,
    ) -> None:
        self._transport, self._limiter = transport, RateLimiter(settings.rate_share / 100, timing)
        self._settings, self._writes_within = settings, writes_within
        self._may_write, self._keys = may_write, keys
        self._clock, self._sleep, self._chance = timing.clock, timing.sleep, timing.chance
        self._least = min(LEAST, settings.call_timeout / 10)

    def call(self, api: Api, params: Mapping[str, object], type: type[T]) -> T:
        """The answer, or the CloudError of the last attempt: of an earlier one if that one's outcome stays open."""
        deadline = self._clock() + self._settings.call_timeout
        open_since: CloudError | None = None
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._attempt(api, params, type, deadline)
            except CloudError as error:
                if api.writes and not isinstance(error, _TURNED_AWAY):
                    open_since = error if isinstance(error, _OUTCOME_UNKNOWN) else None
                delay = delay_of(error, attempt, repeatable=api.repeatable, chance=self._chance())
                if delay is None or self._clock() + delay >= deadline - self._least:
                    raise open_since or error  # noqa: B904 - the open one is the cause that counts
                log.debug("cloud call repeated", api=api.action, code=error.code, attempt=attempt)
                self._sleep(delay)

    def _attempt(self, api: Api, params: Mapping[str, object], type: type[T], deadline: float) -> T:
        latest = deadline - self._least
        if has_turn := self._limiter.wait(api, latest):
            # Else they would be renewed while it is signed, after it was asked whether to write.
            with _failures_counted(api):
                self._keys()
        if not has_turn or self._clock() > latest:
            message = "there was no turn at our share of the rate, or there were no keys, in time"
            raise Throttled("OwnLimit", message, action=api.action)
        if api.writes:
            self._may_write()
        longest = min(self._settings.attempt_timeout, self._writes_within if api.writes else math.inf)
        timeout = min(longest, max(0.001, deadline - self._clock()))
        with _failures_counted(api), SECONDS.labels(api.action).time():
            answer = self._transport.call(api, params, type, timeout)
        CALLS.labels(api.action, "success").inc()
        return answer


def delay_of(error: CloudError, attempt: int, *, repeatable: bool, chance: float) -> float | None:
    """Seconds to wait after the *attempt*-th failure in a row, or None when the call is not to be repeated.

    *chance*, from 0 up to 1, spreads callers that failed together over the second half of the delay.
    """
    passing = isinstance(error, _NOT_CARRIED_OUT) or (repeatable and isinstance(error, _OUTCOME_UNKNOWN))
    if not passing:
        return None
    return min(LONGEST, FIRST * 2.0 ** min(attempt - 1, 10)) * (1 + chance) / 2


@contextmanager
def _failures_counted(api: Api) -> Iterator[None]:
    try:
        yield
    except CloudError as error:
        CALLS.labels(api.action, error.result()).inc()
        raise
