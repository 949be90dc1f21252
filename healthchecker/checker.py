"""The answer to health checks, by the last known state of the Deployment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog
from prometheus_client import Gauge

from api.health_checks import FAIL, SCHEDULED, State
from api.ingress_daemonset import KIND
from healthchecker.config import Config
from kube.types import ObjectMeta, Value, read_annotation
from runtime import time


class DeploymentSpec(Value, frozen=True):
    replicas: int = 1


class DeploymentStatus(Value, frozen=True):
    available_replicas: int = 0


class Deployment(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


class Mark(Value, frozen=True):
    """Of a detachment: the *key* of its annotation; empty without one."""

    key: str = ""


def annotation_of(deployment: Deployment, config: Config) -> str | None:
    """The annotation that takes the node out of service, if any.

    After a change of its key, nodes are detached by another one than this checker has until it is replaced.
    """
    annotations = deployment.metadata.annotations
    mark = read_annotation(annotations, SCHEDULED, Mark) or Mark()
    return next((key for key in (config.annotation, mark.key) if key in annotations), None)


def fault_of(deployment: Deployment | None, config: Config) -> str | None:
    """Why the node must not get traffic, if it must not.

    Generations are not compared: annotating a Deployment raises its generation like an update does.
    """
    name = f"Deployment {config.deployment}"
    if deployment is None:
        return f"{name} does not exist"
    if not _is_of(deployment.metadata, config):
        return f"{name} does not belong to {KIND} {config.ingress_daemonset}"
    if deployment.metadata.deletion_timestamp is not None:
        return f"{name} is being deleted"
    if annotation := annotation_of(deployment, config):
        return f"{name} is about to be updated (annotation {annotation})"
    available, replicas = deployment.status.available_replicas, deployment.spec.replicas
    if replicas > 0 and available >= replicas:
        return None
    return f"{available} of {replicas} replicas of {name} are available"


def _is_of(metadata: ObjectMeta, config: Config) -> bool:
    # "a-b" on node "c" and "a" on node "b-c" have the same name.
    owner = metadata.controller
    return owner is not None and (owner.kind, owner.name) == (KIND, config.ingress_daemonset)


log = structlog.get_logger(__name__)

HEALTHY = Gauge("drawbridge_healthchecker_healthy", "Whether the node may get traffic.")
AGE = Gauge(
    "drawbridge_healthchecker_sight_age_seconds",
    "Time since the Deployment was last known to be as it was seen.",
)
BLIND = Gauge(
    "drawbridge_healthchecker_blind", "Whether the API server has been silent for longer than is tolerated."
)


@dataclass(frozen=True)
class Seen:
    """*fault* was true *at* that time, or a little later.

    *scheduled* is the detachment that the Deployment is under since *detached_at*; None when it is under none.
    """

    fault: str | None
    at: float
    metadata: ObjectMeta
    scheduled: str | None
    detached_at: float


class Checker:
    """Written by one thread and read by many: its state is replaced as a whole. *clock* never goes back."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self.clock = config, clock
        self._seen: Seen | None = None
        self._error = "no answer of the API server yet"

    def see(self, deployment: Deployment | None, at: float) -> None:
        """The Deployment, or None when there is none, as it was *at* this time."""
        before = self._seen
        fault = fault_of(deployment, self._config)
        if before is None or before.fault != fault:
            log.info("answer changed", deployment=self._config.deployment, fault=fault)
        metadata = deployment.metadata if deployment else ObjectMeta()
        is_scheduled = deployment is not None and annotation_of(deployment, self._config) is not None
        scheduled = metadata.annotations.get(SCHEDULED, "") if is_scheduled else None
        # Not *at*: the first 503 of this detachment is answered from now on.
        detached_at = self.clock()
        if before is not None and (before.metadata.uid, before.scheduled) == (metadata.uid, scheduled):
            detached_at = before.detached_at
        self._seen = Seen(fault, at, metadata, scheduled, detached_at)

    def nothing_new(self, at: float) -> None:
        """All that happened until *at* has been seen."""
        if self._seen is not None:
            self._seen = replace(self._seen, at=at)

    def failed(self, error: Exception) -> None:
        self._error = str(error)

    @property
    def age(self) -> float:
        seen = self._seen
        return self.clock() - seen.at if seen else float("inf")

    @property
    def is_blind(self) -> bool:
        return self.age > self._config.bound

    def problem(self) -> str | None:
        """Why the node must not get traffic, if it must not."""
        seen = self._seen
        if seen is None:
            return f"Deployment {self._config.deployment} has not been seen yet: {self._error}"
        if self.is_blind and self._config.on_outage == FAIL:
            return f"Deployment {self._config.deployment} was last seen {self.age:.0f} s ago: {self._error}"
        return seen.fault

    def state(self) -> State:
        now, seen, problem = self.clock(), self._seen, self.problem()
        status = 503 if problem else 200
        if seen is None:
            return State(status, problem or "")
        return State(
            status,
            problem or "",
            seen.metadata.uid,
            seen.metadata.generation,
            seen.scheduled or "",
            now - seen.detached_at if seen.scheduled is not None else 0.0,
            now - seen.at,
        )


def export_metrics(checker: Checker) -> None:
    HEALTHY.set_function(lambda: float(checker.problem() is None))
    AGE.set_function(lambda: checker.age)
    BLIND.set_function(lambda: float(checker.is_blind))
