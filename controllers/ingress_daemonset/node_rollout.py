"""A node with its Deployment: the phase of its rollout, and how far its detachment is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any

from controllers.ingress_daemonset import rollout_annotations
from controllers.ingress_daemonset.actions import Target, Writes, target
from controllers.ingress_daemonset.clb.backends import NodeBackends, by_load_balancer
from controllers.ingress_daemonset.confirmation import Reading, doubt_of
from controllers.ingress_daemonset.desired import deployment
from controllers.ingress_daemonset.drift import Altered, Baseline, Drift, baseline_of, covers, drift_of
from controllers.ingress_daemonset.rollout_annotations import Mark
from controllers.ingress_daemonset.types import Workload
from healthchecker import SCHEDULED, deployment_name
from webhook.ingress_daemonset import NODE_LABEL, TEMPLATE_HASH
from webhook.ingress_daemonset.node_matching import FollowedNode
from webhook.ingress_daemonset.types import (
    OFF,
    PREFERRED,
    REQUIRED,
    Annotation,
    IngressDaemonSet,
    RollingUpdate,
    time_of,
)

LONG_AGO = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class Phase(StrEnum):
    """The most urgent ones first, as a status names them."""

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


@dataclass(frozen=True)
class DrainStatus:
    """What the status of the IngressDaemonSet has about the drain of a node."""

    requested: str = ""
    evictable: bool = False


@dataclass(frozen=True, eq=False)
class NodeRollout:
    """*readings* are of the node's health checkers, *backends* what is known of it at load balancers."""

    resource: IngressDaemonSet
    node: FollowedNode
    deployment: Workload | None
    writes: Writes
    readings: tuple[Reading, ...] = ()
    drain: DrainStatus = DrainStatus()
    backends: tuple[NodeBackends, ...] = ()

    @cached_property
    def body(self) -> dict[str, Any]:
        return deployment(self.resource, self.node.name)

    @cached_property
    def target(self) -> Target:
        """Of its Deployment."""
        of = self.resource.metadata
        return Target("Deployment", of.namespace, deployment_name(of.name, self.node.name))

    @property
    def name(self) -> str:
        return self.target.name

    @cached_property
    def uncertain(self) -> bool:
        """Whether a write to its Deployment or its Node may still arrive."""
        return not self.writes.uncertain.isdisjoint({target("Node", self.node.metadata), self.target})

    @property
    def rolling(self) -> RollingUpdate:
        return self.resource.spec.update_strategy.rolling_update

    @property
    def uid(self) -> str:
        return self.resource.metadata.uid

    @cached_property
    def annotations(self) -> dict[str, str]:
        """Of the Deployment; none of an unmanaged one."""
        return self.deployment.metadata.annotations if self.deployment and not self.unmanaged else {}

    @cached_property
    def deployment_mark(self) -> Mark | None:
        return rollout_annotations.on_deployment(self.annotations)

    @cached_property
    def node_mark(self) -> Mark | None:
        return rollout_annotations.on_node(self.node.metadata.annotations).get(self.uid)

    @cached_property
    def unmanaged(self) -> bool:
        held = self.deployment
        return held is not None and not held.is_managed(self.uid, self.body)

    @cached_property
    def absent(self) -> bool:
        return self.deployment is None or self.deployment.is_terminating

    @cached_property
    def in_flight(self) -> bool:
        return self.uncertain or self.deployment_mark is not None or self.node_mark is not None

    @cached_property
    def detached(self) -> bool:
        """Whether it is detached from the load balancer, by us or by others."""
        on_deployment, on_node = self.rolling.deployment_annotation, self.rolling.node_annotation
        return (
            (self.in_flight and self.settled_at is None)
            or (on_deployment is not None and on_deployment.key in self.annotations)
            or (on_node is not None and on_node.key in self.node.metadata.annotations)
        )

    @cached_property
    def unavailable(self) -> bool:
        """Whether it counts against the budget: detached, or about to be, or just attached, or unreliable."""
        node = self.node
        return (
            self.in_flight
            or self.detached
            or not node.ready
            or node.cordoned
            or node.excluded
            or node.to_be_deleted
        )

    @cached_property
    def draining(self) -> bool:
        """Whether its pods are about to be evicted, and it can be detached before."""
        if self.absent or self.unmanaged or not self.resource.spec.detaches_for_evictions:
            return False
        return bool(self.drain.requested) or self.node.to_be_deleted

    @cached_property
    def may_be_evictable(self) -> bool:
        """Whether the status says so, or a write of it may still arrive; until withdrawn, it is not attached."""
        return (
            self.drain.evictable
            or target("IngressDaemonSet", self.resource.metadata) in self.writes.uncertain
        )

    @cached_property
    def degraded(self) -> bool:
        """Whether it is being updated or has lost pods; a new or a NotReady node alone is not degraded."""
        if self.in_flight or self.absent or self.deployment is None:
            return self.in_flight
        return self.node.ready and self.deployment.was_complete and not self.deployment.available

    @property
    def desired_hash(self) -> str:
        return str(self.body["metadata"]["annotations"][TEMPLATE_HASH])

    @cached_property
    def baseline(self) -> Baseline | None:
        return baseline_of(self.annotations)

    @cached_property
    def drift(self) -> Drift:
        if self.deployment is None:
            return Drift.NONE
        live, desired = self.deployment.spec.get("template") or {}, self.body["spec"]["template"]
        return drift_of(
            self.deployment,
            self.desired_hash,
            self.deployment.template_digest,
            lambda: covers(desired, live),
            placed=_place(live) == _place(desired),
        )

    @cached_property
    def outdated(self) -> bool:
        return self.drift.calls_for_update

    @cached_property
    def phase(self) -> Phase:
        if self.unmanaged:
            return Phase.UNMANAGED
        if self.absent or self.deployment is None:
            return Phase.STARTING
        if self.outdated:
            return Phase.DETACHING if self.in_flight else Phase.OUTDATED
        if self.draining:
            return Phase.DRAINING
        if self.in_flight:
            return Phase.ATTACHING if self.deployment.rolled_out else Phase.UPDATING
        if self.drift is Drift.ALTERED:
            return Phase.ALTERED
        if self.deployment.available:
            return Phase.CURRENT
        return Phase.DEGRADED if self.deployment.was_complete else Phase.STARTING

    @property
    def altered(self) -> Altered | None:
        """The Deployment, if it is left as another writer made it."""
        if self.deployment is None or self.unmanaged or self.drift is not Drift.ALTERED:
            return None
        return Altered("Deployment", self.name, self.deployment.template_digest)

    @property
    def is_detaching(self) -> bool:
        return self.phase in (Phase.DETACHING, Phase.DRAINING)

    @cached_property
    def marked_at(self) -> datetime:
        """The first of its marks; long ago without any."""
        return min((mark.at for mark in (self.deployment_mark, self.node_mark) if mark), default=LONG_AGO)

    @cached_property
    def untouched(self) -> bool:
        """Whether it is detached, and its template has not been replaced since."""
        updated = self.baseline.updated if self.baseline else None
        return self.phase is Phase.DETACHING and (updated is None or updated < self.marked_at)

    def is_stuck(self, now: datetime) -> bool:
        if self.phase is not Phase.UPDATING or self.deployment is None:
            return False
        if self.deployment.is_stuck:
            return (judged_at := self.judged_at) is None or judged_at <= now
        return (overdue_at := self.overdue_at) is not None and overdue_at <= now

    @cached_property
    def judged_at(self) -> datetime | None:
        """When the Deployment's deadline can have passed; its condition may still be that of the template before."""
        updated = self.baseline.updated if self.baseline else None
        if updated is None or self.deployment is None or not self.deployment.is_stuck:
            return None
        return _after(updated, self.resource.spec.progress_deadline_seconds)

    @cached_property
    def overdue_at(self) -> datetime | None:
        """When its pods should be available, while the Deployment controller does not watch its deadline.

        If its write of the new ReplicaSet's condition meets a conflict, that condition is never written, and a
        Deployment whose pods cannot be created counts as complete indefinitely (Kubernetes, pkg/controller/deployment:
        getNewReplicaSet and syncRolloutStatus). A new ReplicaSet may wait for the old pods to terminate.
        """
        held, updated = self.deployment, self.baseline.updated if self.baseline else None
        if self.phase is not Phase.UPDATING or held is None or updated is None or not held.was_complete:
            return None
        return _after(updated, self.resource.spec.progress_deadline_seconds + held.termination_grace)

    @cached_property
    def deployment_unmarked(self) -> bool:
        return _lacks(self.rolling.deployment_annotation, self.deployment_mark, self.annotations)

    @cached_property
    def node_unmarked(self) -> bool:
        return _lacks(self.rolling.node_annotation, self.node_mark, self.node.metadata.annotations)

    @property
    def timestamp(self) -> datetime | None:
        """When the Node was detached this time, by its annotation; None without one."""
        wanted, mark = self.rolling.timestamp, self.node_mark
        text = self.node.metadata.annotations.get(wanted.key, "") if wanted else ""
        return None if mark is None or text == mark.stale else time_of(text)

    @property
    def settled_at(self) -> datetime | None:
        """When the load balancer sends traffic to the node again; None unless it was just attached."""
        mark = self.deployment_mark
        if mark is None or not mark.attached:
            return None
        return _after(mark.at, self.rolling.attach_grace_period_seconds)

    @property
    def lacks_timestamp(self) -> bool:
        marked = self.is_detaching and not self.deployment_unmarked and not self.node_unmarked
        return marked and self.safe_at is None

    @property
    def safe_at(self) -> datetime | None:
        """When the last grace ends; None while one has not begun."""
        if self.deployment_unmarked or self.node_unmarked:
            return None
        graces = [
            (self.rolling.deployment_annotation, self.deployment_mark, self.target),
            (self.rolling.node_annotation, self.node_mark, target("Node", self.node.metadata)),
        ]
        ends = [
            _after(max(mark.at, self.writes.late.get(written, mark.at)), annotation.grace_period_seconds)
            for annotation, mark, written in graces
            if annotation and mark
        ]
        if wanted := self.rolling.timestamp:
            if (detached_at := self.timestamp) is None:
                return None
            ends.append(_after(detached_at, wanted.grace_period_seconds))
        return max(ends, default=LONG_AGO)

    @cached_property
    def doubt(self) -> str:
        """Why the detachment is not confirmed; empty when it is, or need not be."""
        if self.rolling.confirm == OFF:
            return ""
        doubts = (each.detach_doubt for each in self.at_load_balancers)
        return self._checkers_doubt or next((each for each in doubts if each), "")

    @property
    def _checkers_doubt(self) -> str:
        ports, annotation = self.resource.spec.health_check_node_ports, self.rolling.deployment_annotation
        if not ports or annotation is None or self.deployment is None:
            return ""
        scheduled = self.annotations.get(SCHEDULED, "")
        grace = annotation.grace_period_seconds
        return doubt_of(ports, self.readings, self.deployment.metadata, scheduled, grace)

    @cached_property
    def at_load_balancers(self) -> list[NodeBackends]:
        """What is known of the node, for each load balancer at which it gets weight 0."""
        weights = self.rolling.weights
        return by_load_balancer(weights.load_balancers, self.backends) if weights else []

    @cached_property
    def detached_at(self) -> datetime | None:
        """When all graces are over, those that begin with weight 0, too; None while one has not begun."""
        if (safe_at := self.safe_at) is None or self.rolling.weights is None:
            return safe_at
        grace = self.rolling.weights.grace_period_seconds
        since = (each.detached_since for each in self.at_load_balancers)
        return max([safe_at, *(_after(each, grace) for each in since if each)])

    @property
    def doubt_ends_at(self) -> datetime | None:
        """When the update goes on without a confirmation; None when it never does."""
        if self.rolling.confirm != PREFERRED or (safe_at := self.safe_at) is None:
            return None
        return _after(safe_at, self.rolling.confirm_timeout_seconds)

    def is_confirmed(self, now: datetime) -> bool:
        """Whether the load balancer sends it nothing more: the graces are over, and the detachment is confirmed."""
        if (detached_at := self.detached_at) is None or detached_at > now:
            return False
        ends = self.doubt_ends_at
        return not self.doubt or (ends is not None and ends <= now)

    def is_released(self, now: datetime) -> bool:
        """Whether its pods may end: the load balancer sends it nothing more, and few connections are open."""
        return self.is_confirmed(now) and not self.waits_for_connections(now)

    @property
    def connections(self) -> int | None:
        """Open ones, by the last reading of its health checkers; None when that is not known."""
        counts = [each.state.connections for each in self.readings if each.state]
        return max((each for each in counts if each is not None), default=None)

    @property
    def connections_end_at(self) -> datetime | None:
        """Until when connections are waited for; None while the graces have not begun, and where they do not count."""
        if (wanted := self.rolling.connections) is None or (detached_at := self.detached_at) is None:
            return None
        return _after(detached_at, wanted.timeout_seconds)

    @property
    def has_connections(self) -> bool:
        """Whether more are open than may be, or it is not known how many."""
        wanted, count = self.rolling.connections, self.connections
        return wanted is not None and (count is None or count > wanted.max)

    def waits_for_connections(self, now: datetime) -> bool:
        ends = self.connections_end_at
        return self.has_connections and ends is not None and ends > now

    def is_doubted(self, now: datetime) -> bool:
        """Whether only the confirmation is missing, though it was asked for."""
        detached_at, was_asked = self.detached_at, bool(self.readings or self.backends)
        is_over = detached_at is not None and detached_at <= now
        return self.is_detaching and was_asked and is_over and not self.is_confirmed(now)

    def attach_doubt(self, now: datetime) -> str:
        """Why load balancers may not send it traffic yet, after it was attached; empty when they do.

        A backend that stays unhealthy is waited for as long as a confirmation, and weights without end if required.
        """
        mark, is_required = self.deployment_mark, self.rolling.confirm == REQUIRED
        if mark is None or self.rolling.confirm == OFF:
            return ""
        is_over = _after(mark.at, self.rolling.confirm_timeout_seconds) <= now
        weights = (each.attach_doubt for each in self.at_load_balancers if is_required or not is_over)
        health = (each.health_doubt for each in self.at_load_balancers if not is_over)
        return next((each for each in (*weights, *health) if each), "")

    @property
    def attach_doubt_ends_at(self) -> datetime | None:
        """When less of it is waited for."""
        mark = self.deployment_mark
        if mark is None or not mark.attached or self.rolling.weights is None:
            return None
        return _after(mark.at, self.rolling.confirm_timeout_seconds)


def _place(template: dict[str, Any]) -> tuple[Any, Any]:
    labels = (template.get("metadata") or {}).get("labels") or {}
    return (template.get("spec") or {}).get("nodeName"), labels.get(NODE_LABEL)


def _lacks(wanted: Annotation | None, mark: Mark | None, annotations: dict[str, str]) -> bool:
    return wanted is not None and (mark is None or mark.key != wanted.key or wanted.key not in annotations)


def _after(moment: datetime, seconds: int) -> datetime:
    return moment + timedelta(seconds=seconds)
