"""What was last seen of the Deployment decides the answer, by default also while the API server is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from healthchecker import SCHEDULED
from healthchecker.config import Task
from healthchecker.readiness import Deployment, Metadata, fault_of
from healthchecker.state import State

log = structlog.get_logger(__name__)

Clock = Callable[[], float]
"""Seconds that never go back."""


@dataclass(frozen=True)
class Seen:
    """*fault* was true *at* that time, or a little later, and is what it is since *turned_at*.

    *scheduled* is the detachment that the Deployment is under since *detached_at*, if it is.
    """

    fault: str | None
    at: float
    turned_at: float
    metadata: Metadata
    scheduled: str | None = None
    detached_at: float = 0.0


class Sight:
    """Written by one thread and read by many: what it holds is replaced as a whole."""

    def __init__(self, task: Task, clock: Clock = time.monotonic) -> None:
        self._task, self.clock = task, clock
        self._began = clock()
        self._seen: Seen | None = None
        self._trouble = "nothing was heard of the API server yet"
        self._refusals = 0
        self._counting = threading.Lock()

    def see(self, deployment: Deployment | None, at: float) -> None:
        """The Deployment is so, or not there, *at* this time."""
        before, now = self._seen, self.clock()
        fault = fault_of(deployment, self._task)
        if before is None or before.fault != fault:
            log.info("the answer has changed", deployment=self._task.deployment, fault=fault)
        turned = before is None or (before.fault is None) != (fault is None)
        metadata = deployment.metadata if deployment else Metadata()
        scheduled = _scheduled(metadata, self._task)
        seen = Seen(fault, at, now if before is None or turned else before.turned_at, metadata)
        if scheduled is not None and before is not None and _same(before, metadata, scheduled):
            self._seen = replace(seen, scheduled=scheduled, detached_at=before.detached_at)
            return
        with self._counting:
            self._refusals = 0
        # Not *at*: the first 503 of this detachment is answered from now on.
        self._seen = replace(seen, scheduled=scheduled, detached_at=now)

    def nothing_new(self, at: float) -> None:
        """The API server has told all that happened until *at*."""
        if self._seen is not None:
            self._seen = replace(self._seen, at=at)

    def failed(self, error: Exception) -> None:
        self._trouble = str(error)

    @property
    def age(self) -> float:
        """Seconds since the last look; infinite before the first."""
        seen = self._seen
        return self.clock() - seen.at if seen else float("inf")

    @property
    def is_blind(self) -> bool:
        """Whether the last look is longer ago than the bound."""
        return self.age > self._task.bound

    def problem(self) -> str | None:
        """Why the node must not get traffic, if it must not."""
        seen = self._seen
        if seen is None:
            return f"Deployment {self._task.deployment} has not been seen yet: {self._trouble}"
        age = self.clock() - seen.at
        if age > self._task.bound and self._task.fails:
            return f"lost sight of Deployment {self._task.deployment} {age:.0f} s ago: {self._trouble}"
        return seen.fault

    def answer(self) -> str | None:
        """The problem, to a health check."""
        problem = self.problem()
        if problem:
            with self._counting:
                self._refusals += 1
        return problem

    def state(self) -> State:
        now, seen, problem = self.clock(), self._seen, self.problem()
        status = 503 if problem else 200
        if seen is None:
            return State(status, problem or "", now - self._began, refusals=self._refusals)
        return State(
            status,
            problem or "",
            now - self._turned_at(seen, problem),
            seen.metadata.uid,
            seen.metadata.resource_version,
            seen.metadata.generation,
            seen.scheduled or "",
            now - seen.detached_at if seen.scheduled is not None else 0.0,
            self._refusals,
            now - seen.at,
        )

    def _turned_at(self, seen: Seen, problem: str | None) -> float:
        """An answer that is 503 for lost sight alone turned when the bound was over."""
        return seen.at + self._task.bound if problem and seen.fault is None else seen.turned_at


def _scheduled(metadata: Metadata, task: Task) -> str | None:
    """What SCHEDULED says, beside the annotation; None without the annotation."""
    return metadata.annotations.get(SCHEDULED, "") if task.annotation in metadata.annotations else None


def _same(before: Seen, metadata: Metadata, scheduled: str) -> bool:
    return (before.metadata.uid, before.scheduled) == (metadata.uid, scheduled)
