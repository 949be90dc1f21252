"""Measure canaries on other threads: a reconcile never waits for Prometheus."""

from __future__ import annotations

import http.client
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from prometheus_client import Counter

from controllers.clock import Clock
from controllers.executor import Submit
from controllers.ingress_daemonset.canary_metric import Measurement, Query
from runtime import threading

SOON = 0.5
"""Seconds until an answer that is awaited is looked for."""

MEASUREMENTS = Counter(
    "drawbridge_ingress_daemonset_canary_measurements",
    "Queries about canaries, by whether they had one value.",
    ["result"],
)
for _result in ("value", "inconclusive"):
    MEASUREMENTS.labels(_result)

Ask = Callable[[str], float]


@dataclass(frozen=True)
class _Asked:
    """A query that is sent again when it is *due* on the clock; *under_way* until it is answered."""

    query: Query
    due: float = -math.inf
    under_way: bool = False
    answer: Measurement | None = None


class MetricReader:
    """Safe to use from any thread; *submit* hands work to another one, *ask* may raise as a client of HTTP does."""

    def __init__(self, submit: Submit, stop: threading.Event, ask: Ask, clock: Clock) -> None:
        self._submit, self._stop, self._ask, self._clock = submit, stop, ask, clock
        self._asked: dict[str, _Asked] = {}
        self._lock = threading.Lock()

    def measured(self, key: str, wanted: Query | None) -> tuple[Measurement | None, float | None]:
        """The last answer to *wanted* of *key*; seconds until there may be another, None without *wanted*."""
        if wanted is None:
            self.forget(key)
            return None, None
        now = self._clock.monotonic()
        with self._lock:
            known = self._asked.get(key)
            if known is None or known.query != wanted:
                known = _Asked(wanted)
            if is_due := not known.under_way and known.due <= now:
                known = self._asked[key] = replace(known, due=now + wanted.interval, under_way=True)
        if is_due:
            self._submit(partial(self._update, key, known))
        known = self._asked.get(key, known)
        return known.answer, SOON if known.under_way else max(SOON, known.due - now)

    def forget(self, key: str) -> None:
        with self._lock:
            self._asked.pop(key, None)

    def _update(self, key: str, asked: _Asked) -> None:
        if self._stop.is_set():
            return
        found = self._measure(asked.query, self._clock.now())
        MEASUREMENTS.labels("inconclusive" if found.value is None else "value").inc()
        with self._lock:
            # Another query, or none, may be wanted by now.
            if self._asked.get(key) is asked:
                self._asked[key] = replace(asked, under_way=False, answer=found)

    def _measure(self, query: Query, now: datetime) -> Measurement:
        try:
            return Measurement(query, now, self._ask(query.text))
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Measurement(query, now, error=str(error) or type(error).__name__)
