"""What was seen of the Deployment counts for a bounded time, and for nothing afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from healthchecker.task import Task
from healthchecker.verdict import Deployment, fault_of

log = structlog.get_logger(__name__)

Clock = Callable[[], float]
"""Seconds that never go back."""


@dataclass(frozen=True)
class Seen:
    """*fault* was true *at* that time, or a little later."""

    fault: str | None
    at: float


class Sight:
    """Written by one thread and read by many: what it holds is replaced as a whole."""

    def __init__(self, task: Task, clock: Clock = time.monotonic) -> None:
        self._task, self.clock = task, clock
        self._seen: Seen | None = None
        self._trouble = "nothing was heard of the API server yet"

    def see(self, deployment: Deployment | None, at: float) -> None:
        """The Deployment is so, or not there, *at* this time."""
        fault = fault_of(deployment, self._task)
        if self._seen is None or self._seen.fault != fault:
            log.info("the answer has changed", deployment=self._task.deployment, fault=fault)
        self._seen = Seen(fault, at)

    def nothing_new(self, at: float) -> None:
        """The API server has told all that happened until *at*."""
        if self._seen is not None:
            self._seen = Seen(self._seen.fault, at)

    def failed(self, error: Exception) -> None:
        self._trouble = str(error)

    @property
    def age(self) -> float:
        """Seconds since the last look; infinite before the first."""
        seen = self._seen
        return self.clock() - seen.at if seen else float("inf")

    def problem(self) -> str | None:
        """Why the node must not get traffic, if it must not."""
        seen = self._seen
        if seen is None:
            return f"Deployment {self._task.deployment} has not been seen yet: {self._trouble}"
        age = self.clock() - seen.at
        if age > self._task.bound:
            return f"lost sight of Deployment {self._task.deployment} {age:.0f} s ago: {self._trouble}"
        return seen.fault
