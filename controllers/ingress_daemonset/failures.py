"""Nodes that fail with what a rollout has given them: since when, and for how long in all.

Pods may crash again and again after they were available. So a node that has lost its pods counts against the budget
until it has had them for progressDeadlineSeconds without interruption, and it has failed when it has lacked them for
that long in all. So has one whose update the API server has refused for that long. What fails now is observed; the
times are in the status, and void for another template, which no node has failed with yet: it comes to those that failed
with the former one first, also at a moment at which they have their pods. In a pause no time counts against a node, so
that it is tried for a whole deadline after it, and the template does not become that of all nodes meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from api.ingress_daemonset.types import IngressDaemonSet
from controllers.ingress_daemonset.desired import applied_digest, is_current
from controllers.ingress_daemonset.drift import Drift
from controllers.ingress_daemonset.node_rollout import NodeRollout, Phase
from kube.types import Value, complete, rfc3339

ROLLING = (Phase.OUTDATED, Phase.DETACHING, Phase.UPDATING, Phase.ATTACHING)
"""Of a node whose update is not over."""
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
LOST, FORMER = "it has lost pods with the new template", "it has lost pods with the template before"


class Failure(Value, frozen=True):
    """Of a node, *since* a time, or until *well_since*; *seconds* are those before, in all."""

    reason: str = ""
    since: Moment | None = None
    well_since: Moment | None = None
    seconds: int = 0

    def lasted(self, now: datetime) -> timedelta:
        return timedelta(seconds=self.seconds) + (now - self.since if self.since else timedelta())

    def ends_at(self, deadline: timedelta) -> datetime | None:
        """When the node has failed, or is trusted again."""
        if self.well_since:
            return self.well_since + deadline
        return self.since + deadline - timedelta(seconds=self.seconds) if self.since else None

    def raw(self) -> dict[str, Any]:
        times = {"since": self.since, "wellSince": self.well_since}
        known = {name: rfc3339(each) for name, each in times.items() if each}
        return {"reason": self.reason, **known, "seconds": self.seconds}


class Stored(Value, frozen=True):
    """The field of the status."""

    digest: str = ""
    nodes: dict[str, Failure] = {}


complete(Failure, Stored)


@dataclass(frozen=True)
class Failures:
    """*nodes* fail, or did less than *deadline* ago; without any, there is no field of the status."""

    digest: str = ""
    nodes: Mapping[str, Failure] = field(default_factory=dict)
    deadline: timedelta = timedelta()

    @property
    def with_template(self) -> bool:
        """Whether any node fails with the present one."""
        return any(each.reason != FORMER for each in self.nodes.values())

    def failed(self, now: datetime) -> Iterator[tuple[str, Failure]]:
        """Those that have failed for the deadline, in all, though they may be well again at the moment."""
        return ((name, each) for name, each in self.nodes.items() if each.lasted(now) >= self.deadline)

    def ends_at(self, node: str) -> datetime | None:
        return self.nodes[node].ends_at(self.deadline)

    def status(self) -> dict[str, Any]:
        nodes = {name: each.raw() for name, each in self.nodes.items()}
        return {"failures": {"digest": self.digest, "nodes": nodes}} if nodes else {}


NO_FAILURES = Failures()


def failures_of(resource: IngressDaemonSet, rollouts: Sequence[NodeRollout], now: datetime) -> Failures:
    """None on the way back to the template that all nodes had."""
    if is_return(resource, rollouts):
        return NO_FAILURES
    digest = applied_digest(resource)
    stored = _stored(resource)
    old = stored.nodes if stored.digest == digest else _of_former(stored.nodes)
    if not old and not any(each.phase in ROLLING for each in rollouts):
        return NO_FAILURES
    deadline, moment = timedelta(seconds=resource.spec.progress_deadline_seconds), now.replace(microsecond=0)
    found = {each.node.name: _failure(each, old.get(each.node.name), deadline, moment) for each in rollouts}
    failures = {name: each for name, each in found.items() if each}
    if resource.spec.paused:
        failures = {name: Failure(each.reason, None, each.well_since) for name, each in failures.items()}
    return Failures(digest, failures, deadline)


def is_return(resource: IngressDaemonSet, rollouts: Iterable[NodeRollout]) -> bool:
    """Whether nodes go back to the template that all of them had: nothing holds that up."""
    return is_current(resource) and any(each.drift is Drift.OUTDATED for each in rollouts)


def halting(rollouts: Iterable[NodeRollout], failures: Failures, now: datetime) -> dict[str, str]:
    """The nodes because of which the rollout halts, and what is wrong.

    What a NotReady node lacks says nothing about the template.
    """
    stuck = (each.node.name for each in rollouts if each.node.ready and each.is_stuck(now))
    found = dict.fromkeys(stuck, "pods did not become available within progressDeadlineSeconds")
    return found | {
        name: f"{each.reason}, for progressDeadlineSeconds" for name, each in failures.failed(now)
    }


def _stored(resource: IngressDaemonSet) -> Stored:
    try:
        return msgspec.convert(resource.status.get("failures") or {}, Stored)
    except msgspec.ValidationError:
        return Stored()


def _of_former(nodes: Mapping[str, Failure]) -> Mapping[str, Failure]:
    lost = {name: each for name, each in nodes.items() if each.reason in (LOST, FORMER)}
    return {name: Failure(FORMER, None, each.well_since) for name, each in lost.items()}


def _failure(rollout: NodeRollout, old: Failure | None, deadline: timedelta, now: datetime) -> Failure | None:
    if not rollout.node.ready or rollout.draining:
        return None
    before = old or Failure()
    if rollout.refusal:
        return Failure(rollout.refusal, before.since or now, None, before.seconds)
    if _has_lost_pods(rollout):
        return Failure(LOST, before.since or now, None, before.seconds)
    if old and rollout.outdated:
        return _untouched(rollout, old, deadline, now)
    if old and old.reason != LOST:
        return None
    if old and not old.well_since:
        return Failure(old.reason, None, now, round(old.lasted(now).total_seconds()))
    ends_at = old.ends_at(deadline) if old else None
    return old if ends_at and ends_at > now else None


def _untouched(rollout: NodeRollout, old: Failure, deadline: timedelta, now: datetime) -> Failure | None:
    if old.reason != FORMER:
        return old
    well_since = None if rollout.lost else old.well_since or now
    return None if well_since and well_since + deadline <= now else Failure(FORMER, None, well_since)


def _has_lost_pods(rollout: NodeRollout) -> bool:
    """Not one that lacks them in its update."""
    was_attached = rollout.phase is Phase.DEGRADED or rollout.settled_at is not None
    return was_attached and not rollout.outdated and rollout.lost
