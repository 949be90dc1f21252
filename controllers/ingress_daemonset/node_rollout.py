"""A node with its Deployment: the phase of its rollout."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from api.ingress_daemonset import NODE_LABEL, TEMPLATE_HASH
from controllers.ingress_daemonset.actions import target
from controllers.ingress_daemonset.desired import digest, shares_ports, size_of
from controllers.ingress_daemonset.detachment import Detachment, after
from controllers.ingress_daemonset.drift import Altered, Baseline, Drift, baseline_of, covers, drift_of


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
class NodeRollout(Detachment):
    """A node with its Deployment, which is updated, drained or left as it is."""

    drain: DrainStatus = DrainStatus()

    @cached_property
    def uncertain(self) -> bool:
        """Whether a write to its Deployment or its Node may still arrive."""
        return not self.writes.uncertain.isdisjoint({target("Node", self.node.metadata), self.target})

    @cached_property
    def refusal(self) -> str:
        """Why the API server refuses what its update needs; empty while it does not."""
        for each in (self.target, target("Node", self.node.metadata)) if self.outdated else ():
            if why := self.writes.refused.get(each):
                return f"the API server refuses to change {each.kind} {each.name}: {why}"
        return ""

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
    def lost(self) -> bool:
        """Whether a Ready node lacks pods that it had: its health checks fail."""
        if self.absent or self.unmanaged or self.deployment is None:
            return False
        return self.node.ready and self._had_pods and not self.deployment.available

    @property
    def _had_pods(self) -> bool:
        """Those that were replaced count, too: the node served before, though an uninstall has attached it since."""
        replaced = self.baseline is not None and self.baseline.updated is not None
        return replaced or (self.deployment is not None and self.deployment.was_complete)

    @property
    def lacks_pods(self) -> bool:
        """Whether a Ready node has not all of its pods: it has lost some, or they are starting."""
        return self.node.ready and not self.unmanaged and (self.absent or not self._has_its_pods)

    @property
    def _has_its_pods(self) -> bool:
        return self.deployment is not None and self.deployment.available

    @cached_property
    def unavailable(self) -> bool:
        """Whether it counts against the budget: detached, or about to be, or just attached, or unreliable."""
        node = self.node
        return (
            self.in_flight
            or self.detached
            or self.lacks_pods
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
        """Whether it is being updated or lacks pods; a NotReady node alone is not degraded."""
        return self.in_flight or self.lacks_pods

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

    @property
    def needs_template(self) -> bool:
        return self.drift.calls_for_update

    @cached_property
    def outdated(self) -> bool:
        """Whether it is to be updated, when it is its turn."""
        return self.needs_template or (self.needs_size and not self.resizes_at_once)

    @cached_property
    def needs_size(self) -> bool:
        """Whether its Deployment has another number of pods, or another minReadySeconds, and no policy made it so."""
        held, baseline, size = self.deployment, self.baseline, size_of(self.resource)
        if (
            held is None
            or self.unmanaged
            or all(covers(each, held.spec.get(name)) for name, each in size.items())
        ):
            return False
        return baseline is None or baseline.size != digest(size) or not baseline.is_answered_by(held)

    @cached_property
    def resizes_at_once(self) -> bool:
        """Whether that makes no health check fail: of a node that fails anyway, or with a shorter time to be ready.

        With the old template, the number of pods for the new one could refuse each other's ports.
        """
        held, spec = self.deployment, self.resource.spec
        if held is None or (self.needs_template and shares_ports(self.resource)):
            return False
        is_shorter = held.replicas == spec.pods_per_node and spec.min_ready_seconds <= held.min_ready_seconds
        return is_shorter or not held.available

    @cached_property
    def phase(self) -> Phase:
        if self.unmanaged:
            return Phase.UNMANAGED
        if self.absent or self.deployment is None:
            return Phase.STARTING
        if self.outdated:
            return Phase.DETACHING if self.in_flight and not self.returns else Phase.OUTDATED
        if self.draining:
            return Phase.DRAINING
        if self.in_flight:
            return Phase.ATTACHING if self.deployment.rolled_out else Phase.UPDATING
        if self.drift is Drift.ALTERED:
            return Phase.ALTERED
        if self.deployment.available:
            return Phase.CURRENT
        return Phase.DEGRADED if self._had_pods else Phase.STARTING

    @cached_property
    def joined(self) -> bool:
        """Whether its first pods have the desired template, or get it: no others were replaced there."""
        if self.absent:
            return True
        return not self.needs_template and self.baseline is not None and self.baseline.updated is None

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
    def untouched(self) -> bool:
        """Whether it is detached, and its template has not been replaced since."""
        return self.phase is Phase.DETACHING and not self._was_updated

    @property
    def _updated_at(self) -> datetime | None:
        return self.baseline.updated if self.baseline else None

    @property
    def _was_updated(self) -> bool:
        """Since it was detached."""
        return self._updated_at is not None and self._updated_at >= self.marked_at

    @property
    def is_stranded(self) -> bool:
        """Whether it can neither be attached, with the pods that it has, nor begin, while others come first."""
        return self.untouched and self.lacks_pods

    def is_stuck(self, now: datetime) -> bool:
        if self.phase is not Phase.UPDATING or self.deployment is None:
            return False
        if self.deployment.is_stuck:
            return (judged_at := self.judged_at) is None or judged_at <= now
        return (overdue_at := self.overdue_at) is not None and overdue_at <= now

    @cached_property
    def judged_at(self) -> datetime | None:
        """When the Deployment's deadline can have passed; its condition may still be that of the template before."""
        if self.deployment is None or not self.deployment.is_stuck or self._deadline_begins is None:
            return None
        return after(self._deadline_begins, self.resource.spec.progress_deadline_seconds)

    @property
    def _deadline_begins(self) -> datetime | None:
        """With its update, and again when the node is back: while it is NotReady, it proves nothing."""
        updated, back = self._updated_at, self.node.ready_since
        return max(updated, back) if updated and back else updated

    @cached_property
    def overdue_at(self) -> datetime | None:
        """When its pods should be available, whatever the Deployment controller says.

        There, pods that become ready and crash again have made progress each time. And if its write of the new
        ReplicaSet's condition meets a conflict, that is never written, and a Deployment whose pods cannot be created
        counts as complete indefinitely (Kubernetes, pkg/controller/deployment: DeploymentProgressing,
        getNewReplicaSet). A new ReplicaSet may wait for the old pods to terminate.
        """
        held, began, spec = self.deployment, self._deadline_begins, self.resource.spec
        if self.phase is not Phase.UPDATING or held is None or began is None or not self._was_updated:
            return None
        turns = 1 if self.rolling.detaches else held.replicas
        seconds = spec.progress_deadline_seconds + spec.min_ready_seconds
        return after(began, turns * seconds + held.termination_grace)

    @property
    def lacks_timestamp(self) -> bool:
        marked = self.is_detaching and not self.deployment_unmarked and not self.node_unmarked
        return marked and self.safe_at is None

    def is_doubted(self, now: datetime) -> bool:
        """Whether only the confirmation is missing, though it was asked for."""
        detached_at, was_asked = self.detached_at, bool(self.readings or self.backends)
        is_over = detached_at is not None and detached_at <= now
        return self.is_detaching and was_asked and is_over and not self.is_confirmed(now)


def _place(template: dict[str, Any]) -> tuple[Any, Any]:
    labels = (template.get("metadata") or {}).get("labels") or {}
    return (template.get("spec") or {}).get("nodeName"), labels.get(NODE_LABEL)
