"""The status of an IngressDaemonSet as a value: what its controllers write, one meaning per field.

Fields that have their default are not stored, but for those with a factory: of these, users see zero and empty, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from kube.types import Condition, Moment, Value, after


class Phase(StrEnum):
    """Of the rollout of a node; the most urgent ones first, as a status names them."""

    UNMANAGED = "Foreign"
    ALTERED = "Altered"
    DETACHING = "Detaching"
    DRAINING = "Draining"
    UPDATING = "Updating"
    ATTACHING = "Attaching"
    DEGRADED = "Degraded"
    STARTING = "Starting"
    OUTDATED = "Outdated"
    CURRENT = "Current"


LEAVING = "Leaving"
"""In place of a phase, of a node that does not match any more."""


class Available(StrEnum):
    """The reasons of the condition of this name."""

    NO_NODES = "NoNodes"
    NODES_WITHOUT_PODS = "NodesWithoutPods"
    ALL_NODES_SERVE = "AllNodesServe"


class Progressing(StrEnum):
    """The reasons of the condition of this name: what a rollout does, or waits for."""

    COMPLETE = "Complete"
    PAUSED = "Paused"
    HALTED = "Halted"
    ROLLED_BACK = "RolledBack"
    ROLLING_OUT = "RollingOut"
    ROLLING_BACK = "RollingBack"
    DRAINING = "Draining"
    CANARY_PAUSED = "CanaryPaused"
    CANARY_DEGRADED = "CanaryDegraded"
    WAVE_PAUSED = "WavePaused"
    WAITING_FOR_WINDOW = "WaitingForWindow"
    WAITING_FOR_DETACHMENT = "WaitingForDetachment"
    WAITING_FOR_NODES = "WaitingForNodes"


class Degraded(StrEnum):
    """The reasons of the condition of this name."""

    UNMANAGED_DEPLOYMENT = "ForeignDeployment"
    UNMANAGED_OBJECT = "ForeignObject"
    ROLLOUT_STUCK = "RolloutStuck"
    TEMPLATE_ALTERED = "TemplateAltered"
    PODS_UNAVAILABLE = "PodsUnavailable"
    AS_DESIRED = "AsDesired"


CONDITIONS: dict[type[StrEnum], str] = {
    Available: "Available",
    Progressing: "Progressing",
    Degraded: "Degraded",
}
"""The types of conditions, by the enumerations of their reasons."""


class Result(StrEnum):
    """How a rollout ended."""

    COMPLETE = "Complete"
    PAUSED = "Paused"
    HALTED = "Halted"
    ROLLED_BACK = "RolledBack"
    SUPERSEDED = "Superseded"


class Promotion(StrEnum):
    """How a canary was promoted."""

    BY_HAND = "Annotation"
    BY_TIME = "Duration"
    BY_METRIC = "Metric"


class WaitingNode(Value, frozen=True):
    """A node that a rollout waits for, or is working on, *since* a time; *phase* is a Phase, or LEAVING."""

    node: str = ""
    phase: str = ""
    reason: str = ""
    since: Moment | None = None


class RolloutStatus(Value, frozen=True):
    """A rollout in progress: *next_nodes* has five at most.

    *estimated_end* is None while it is not known, *window_opens_at* while nodes may begin.
    """

    from_revision: str = msgspec.field(default_factory=str)
    to_revision: str = ""
    digest: str = ""
    started_at: Moment | None = None
    nodes: int = 0
    nodes_left: int = 0
    at_a_time: int = msgspec.field(default=0, name="atATime")
    wave: int = 0
    waves: int = 0
    next_nodes: tuple[str, ...] = msgspec.field(default_factory=tuple)
    window_opens_at: Moment | None = None
    estimated_end: Moment | None = None


class EndedRollout(Value, frozen=True):
    """A rollout that ended with a *result* of the enumeration; *nodes* were updated."""

    from_revision: str = msgspec.field(default_factory=str)
    to_revision: str = ""
    started_at: Moment | None = None
    ended_at: Moment | None = None
    result: str = ""
    nodes: int = msgspec.field(default_factory=int)
    seconds: int = msgspec.field(default_factory=int)
    at_a_time: int = msgspec.field(default=0, name="atATime")


class MetricStatus(Value, frozen=True):
    """What was measured of a canary, for the metric with the digest *revision*.

    *value* is empty, and *message* says why, when that was not conclusive.
    """

    revision: str = ""
    measured_at: Moment | None = None
    value: str = ""
    message: str = ""
    unknown_since: Moment | None = None
    passing_since: Moment | None = None
    passed_at: Moment | None = None
    failures: int = msgspec.field(default_factory=int)
    failed_at: Moment | None = None


class CanaryStatus(Value, frozen=True):
    """*complete_since* is None while its nodes are not as desired, *promoted_at* before it is promoted.

    *promoted_by* is a Promotion then.
    """

    id: str = ""
    revision: str = ""
    digest: str = ""
    started_at: Moment | None = None
    nodes: int = msgspec.field(default_factory=int)
    nodes_complete: int = msgspec.field(default_factory=int)
    complete_since: Moment | None = None
    failing_since: Moment | None = None
    promoted_at: Moment | None = None
    promoted_by: str = ""
    metric: MetricStatus | None = None


class WavesStatus(Value, frozen=True):
    """By the values of *label*; an empty one is of the nodes without it. *completed_at* is None but in a pause."""

    digest: str = ""
    label: str = ""
    current: str | None = None
    next: tuple[str, ...] = msgspec.field(default_factory=tuple)
    completed_at: Moment | None = None


class RollbackStatus(Value, frozen=True):
    """Nodes return from the template *revision*, which has failed, to *to_revision*."""

    revision: str = ""
    to_revision: str = ""
    at: Moment | None = None
    reason: str = ""


class NodeFailure(Value, frozen=True):
    """Of a node, *since* a time, or until *well_since*; *seconds* are those before, in all."""

    reason: str = ""
    since: Moment | None = None
    well_since: Moment | None = None
    seconds: int = msgspec.field(default_factory=int)

    def lasted(self, now: datetime) -> float:
        """In seconds, all in all."""
        return self.seconds + ((now - self.since).total_seconds() if self.since else 0)

    def ends_at(self, deadline: int) -> datetime | None:
        """When the node has failed, or is trusted again."""
        if self.well_since:
            return after(self.well_since, deadline)
        return after(self.since, deadline - self.seconds) if self.since else None


class FailuresStatus(Value, frozen=True):
    """By the name of the node, with the template, and the number of pods, of *digest*."""

    digest: str = ""
    nodes: dict[str, NodeFailure] = {}


class Status(Value, frozen=True):
    """*current_revision* is the last template that all nodes had; *waiting_for* has ten nodes at most."""

    observed_generation: int = msgspec.field(default_factory=int)
    desired_nodes: int = msgspec.field(default_factory=int)
    updated_nodes: int = msgspec.field(default_factory=int)
    ready_nodes: int = msgspec.field(default_factory=int)
    detached_nodes: int = msgspec.field(default_factory=int)
    unavailable_nodes: int = msgspec.field(default_factory=int)
    degraded_nodes: int = msgspec.field(default_factory=int)
    conditions: tuple[Condition, ...] = msgspec.field(default_factory=tuple)
    waiting_for: tuple[WaitingNode, ...] = msgspec.field(default_factory=lambda: ())  # tuple leaves [] out
    current_revision: str = ""
    current_digest: str = ""
    rollout: RolloutStatus | None = None
    history: tuple[EndedRollout, ...] = ()
    """The latest first."""
    canary: CanaryStatus | None = None
    waves: WavesStatus | None = None
    rollback: RollbackStatus | None = None
    failures: FailuresStatus | None = None
    drain_requests: dict[str, str] = {}
    """By node: when an eviction of one of its pods was first denied. The webhook writes it."""
    evictable_nodes: dict[str, str] = {}
    """By node: since when evictions may pass: it is detached, or that has taken too long."""

    def condition(self, kind: str) -> Condition:
        """An empty one before it is reported."""
        return next((each for each in self.conditions if each.type == kind), Condition(kind))


def status_of(raw: Mapping[str, Any]) -> Status:
    """*raw* as a value. A part that cannot be read, as of another version, is as if it were not there."""
    try:
        return msgspec.convert(raw, Status)
    except msgspec.ValidationError:
        return msgspec.convert({name: part for name, part in raw.items() if _is_readable(name, part)}, Status)


def raw_of(part: Value | Sequence[Value]) -> Any:
    """*part* as it is stored."""
    return msgspec.json.decode(msgspec.json.encode(part))


def _is_readable(name: str, part: object) -> bool:
    try:
        msgspec.convert({name: part}, Status)
    except msgspec.ValidationError:
        return False
    return True
