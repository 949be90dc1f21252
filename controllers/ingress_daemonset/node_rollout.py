"""A node and its Deployment, and how far its update is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any

from controllers.ingress_daemonset import rollout_annotations
from controllers.ingress_daemonset.actions import Name, Writes
from controllers.ingress_daemonset.compare import covers
from controllers.ingress_daemonset.confirmation import Reading, doubt_of
from controllers.ingress_daemonset.drift import Baseline, Drift, baseline_of, drift_of
from controllers.ingress_daemonset.objects import Workload, has_selector
from webhook.ingress_daemonset import NODE_LABEL, TEMPLATE_HASH
from webhook.ingress_daemonset.node_matching import FollowedNode
from webhook.ingress_daemonset.types import OFF, PREFERRED, Annotation, IngressDaemonSet, RollingUpdate


class Phase(StrEnum):
    CURRENT = "Current"
    STARTING = "Starting"
    DEGRADED = "Degraded"
    OUTDATED = "Outdated"
    DETACHING = "Detaching"
    UPDATING = "Updating"
    ATTACHING = "Attaching"
    DRAINING = "Draining"
    ALTERED = "Altered"
    FOREIGN = "Foreign"


@dataclass(frozen=True, eq=False)
class Site:
    """*body* is what its Deployment should be, *readings* are of its health checkers.

    *drain_requested* and *evictable* are what the status has for its node.
    """

    resource: IngressDaemonSet
    node: FollowedNode
    body: dict[str, Any]
    deployment: Workload | None
    writes: Writes
    readings: tuple[Reading, ...] = ()
    drain_requested: str = ""
    evictable: bool = False

    @cached_property
    def uncertain(self) -> bool:
        """Whether a write to it, or to its Node, may yet arrive."""
        return not self.writes.uncertain.isdisjoint({("Node", self.node.name), ("Deployment", self.name)})

    @cached_property
    def name(self) -> str:
        """Of its Deployment."""
        return str(self.body["metadata"]["name"])

    @property
    def rolling(self) -> RollingUpdate:
        return self.resource.spec.update_strategy.rolling_update

    @property
    def uid(self) -> str:
        return self.resource.metadata.uid

    @cached_property
    def annotations(self) -> dict[str, str]:
        """Of the Deployment; none of one that is not ours."""
        return self.deployment.metadata.annotations if self.deployment and not self.foreign else {}

    @cached_property
    def scheduled(self) -> rollout_annotations.Mark | None:
        return rollout_annotations.on_deployment(self.annotations)

    @cached_property
    def detached(self) -> rollout_annotations.Mark | None:
        return rollout_annotations.on_node(self.node.metadata.annotations).get(self.uid)

    @cached_property
    def foreign(self) -> bool:
        """Somebody else's, or one that the original made for this IngressDaemonSet: a selector can never be changed."""
        held = self.deployment
        return held is not None and not (held.is_of(self.uid) and has_selector(held, self.body))

    @cached_property
    def absent(self) -> bool:
        return self.deployment is None or self.deployment.metadata.deletion_timestamp is not None

    @cached_property
    def in_flight(self) -> bool:
        return self.uncertain or self.scheduled is not None or self.detached is not None

    @cached_property
    def off(self) -> bool:
        """Off the load balancer, whoever saw to it."""
        by_deployment, by_node = self.rolling.deployment_annotation, self.rolling.node_annotation
        return (
            self.in_flight
            or (by_deployment is not None and by_deployment.key in self.annotations)
            or (by_node is not None and by_node.key in self.node.metadata.annotations)
        )

    @cached_property
    def unavailable(self) -> bool:
        """Off, or soon to be, or not to be counted on: it uses up a part of the budget."""
        node = self.node
        return self.off or not node.ready or node.cordoned or node.excluded or node.to_be_deleted

    @cached_property
    def drains(self) -> bool:
        """Whether its pods are about to be evicted, and it can be detached before."""
        if self.absent or self.foreign or not self.resource.spec.detaches_for_evictions:
            return False
        return bool(self.drain_requested) or self.node.to_be_deleted

    @cached_property
    def may_be_evictable(self) -> bool:
        """Whether the status says so, or a write of it may yet arrive: before it is withdrawn, none is attached."""
        return self.evictable or ("IngressDaemonSet", self.resource.metadata.name) in self.writes.uncertain

    @cached_property
    def degraded(self) -> bool:
        """Being updated, or short of pods that it had; not for being NotReady alone, nor for being new."""
        if self.in_flight or self.absent or self.deployment is None:
            return self.in_flight
        return self.node.ready and self.deployment.was_complete and not self.deployment.available

    @property
    def wanted_hash(self) -> str:
        return str(self.body["metadata"]["annotations"][TEMPLATE_HASH])

    @cached_property
    def baseline(self) -> Baseline | None:
        return baseline_of(self.annotations)

    @cached_property
    def drift(self) -> Drift:
        """Of the template."""
        if self.deployment is None:
            return Drift.NONE
        live, wanted = self.deployment.spec.get("template") or {}, self.body["spec"]["template"]
        return drift_of(
            self.deployment,
            self.wanted_hash,
            self.deployment.template_digest,
            lambda: covers(wanted, live),
            placed=_place(live) == _place(wanted),
        )

    @cached_property
    def outdated(self) -> bool:
        return self.drift.calls_for_update

    @cached_property
    def phase(self) -> Phase:
        if self.foreign:
            return Phase.FOREIGN
        if self.absent or self.deployment is None:
            return Phase.STARTING
        if self.outdated:
            return Phase.DETACHING if self.in_flight else Phase.OUTDATED
        if self.drains:
            return Phase.DRAINING
        if self.in_flight:
            return Phase.ATTACHING if self.deployment.rolled_out else Phase.UPDATING
        if self.drift is Drift.ALTERED:
            return Phase.ALTERED
        if self.deployment.available:
            return Phase.CURRENT
        return Phase.DEGRADED if self.deployment.was_complete else Phase.STARTING

    @cached_property
    def unscheduled(self) -> bool:
        """Whether its Deployment lacks an annotation, or our Mark of it."""
        return _lacks(self.rolling.deployment_annotation, self.scheduled, self.annotations)

    @cached_property
    def attached(self) -> bool:
        """Whether its Node lacks an annotation, or our Mark of it."""
        return _lacks(self.rolling.node_annotation, self.detached, self.node.metadata.annotations)

    @property
    def confirmed_at(self) -> datetime | None:
        """When the Node says it was detached this time; None without such a word."""
        wanted, mark = self.rolling.timestamp, self.detached
        said = self.node.metadata.annotations.get(wanted.key, "") if wanted else ""
        return None if mark is None or said == mark.stale else time_of(said)

    @property
    def safe_at(self) -> datetime | None:
        """When the last grace ends; None while something is not annotated, or not confirmed, from which one counts."""
        if self.unscheduled or self.attached:
            return None
        by_deployment, by_node = self.rolling.deployment_annotation, self.rolling.node_annotation
        ends = []
        if by_deployment and self.scheduled:
            since = self._stood_since(("Deployment", self.name), self.scheduled)
            ends.append(_after(since, by_deployment.grace_period_seconds))
        if by_node and self.detached:
            since = self._stood_since(("Node", self.node.name), self.detached)
            ends.append(_after(since, by_node.grace_period_seconds))
        if wanted := self.rolling.timestamp:
            if (confirmed := self.confirmed_at) is None:
                return None
            ends.append(_after(confirmed, wanted.grace_period_seconds))
        return max(ends, default=LONG_AGO)

    @cached_property
    def doubt(self) -> str:
        """Why the health checkers have not confirmed the detachment; empty when they have, or need not."""
        ports, annotation = self.resource.spec.health_check_node_ports, self.rolling.deployment_annotation
        if self.rolling.confirm == OFF or not ports or annotation is None or self.deployment is None:
            return ""
        scheduled = self.annotations.get(rollout_annotations.SCHEDULED, "")
        grace = annotation.grace_period_seconds
        return doubt_of(ports, self.readings, self.deployment.metadata, scheduled, grace)

    @property
    def doubt_ends_at(self) -> datetime | None:
        """When it goes on without a confirmation; None when it does not."""
        if self.rolling.confirm != PREFERRED or (safe_at := self.safe_at) is None:
            return None
        return _after(safe_at, self.rolling.confirm_timeout_seconds)

    def is_released(self, now: datetime) -> bool:
        """Whether the load balancer has let go of it: the graces are over, and the checkers have confirmed."""
        if (safe_at := self.safe_at) is None or safe_at > now:
            return False
        ends = self.doubt_ends_at
        return not self.doubt or (ends is not None and ends <= now)

    def is_doubted(self, now: datetime) -> bool:
        """Whether it is held for the confirmation alone, by checkers that have been read, or cannot be."""
        safe_at = self.safe_at
        is_over = safe_at is not None and safe_at <= now
        return bool(self.readings) and is_over and not self.is_released(now)

    def _stood_since(self, name: Name, mark: rollout_annotations.Mark) -> datetime:
        return max(mark.at, self.writes.late.get(name, mark.at))


LONG_AGO = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _place(template: dict[str, Any]) -> tuple[Any, Any]:
    """What differs from node to node."""
    labels = (template.get("metadata") or {}).get("labels") or {}
    return (template.get("spec") or {}).get("nodeName"), labels.get(NODE_LABEL)


def _lacks(
    wanted: Annotation | None, mark: rollout_annotations.Mark | None, annotations: dict[str, str]
) -> bool:
    return wanted is not None and (mark is None or mark.key != wanted.key or wanted.key not in annotations)


def _after(moment: datetime, seconds: int) -> datetime:
    return moment + timedelta(seconds=seconds)


def time_of(said: str) -> datetime | None:
    """None for what is no time with a zone."""
    try:
        moment = datetime.fromisoformat(said)
    except ValueError:
        return None
    return moment if moment.tzinfo else None
