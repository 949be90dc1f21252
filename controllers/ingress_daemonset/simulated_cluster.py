"""A cluster that does at once what a plan writes, and whose pods and load balancer take the time that is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace as changed

from api.health_checks import SCHEDULED, State
from api.ingress_daemonset.node_matching import FollowedNode
from api.ingress_daemonset.types import RollingUpdate
from controllers.ingress_daemonset import rollout_annotations
from controllers.ingress_daemonset.actions import Action, Change, Create, Delete, Writes
from controllers.ingress_daemonset.canary import BY_HAND, promoted
from controllers.ingress_daemonset.clb.backends import NodeBackends
from controllers.ingress_daemonset.confirmation import REFUSED, Reading
from controllers.ingress_daemonset.drift import Answers
from controllers.ingress_daemonset.node_rollout import NodeRollout, Phase
from controllers.ingress_daemonset.snapshot import Snapshot
from controllers.ingress_daemonset.types import (
    COMPLETE,
    Children,
    Workload,
    WorkloadStatus,
)
from kube.types import Condition, Value

T = TypeVar("T", bound=Value)
NONE: Children = {"DaemonSet": (), "RoleBinding": ()}
"""Health checkers are not simulated, so their objects may be left out."""
FIELDS = ("currentRevision", "currentDigest", "canary", "waves")
DONE = (Condition("Progressing", "True", COMPLETE),)


@dataclass(frozen=True)
class Pace:
    """Seconds that a plan waits for beside graces.

    *pods* take so many from a new template until all are available; *timestamp* is how long after the annotation of
    a Node another program adds the time of its detachment.
    """

    pods: float
    timestamp: float = 0.0


class SimulatedCluster:
    """Pods on nodes that are not Ready never start, and health checkers answer as they should."""

    def __init__(self, snapshot: Snapshot, pace: Pace) -> None:
        self.now, self._pace = snapshot.now, pace
        self._first, self._resource = snapshot, snapshot.resource
        self._nodes = {each.name: each for each in snapshot.nodes}
        self._deployments: dict[str, Workload] = {
            each.metadata.name: each for each in snapshot.children["Deployment"]
        }
        self._answers = Answers()
        self._available_at: dict[str, datetime] = {}
        """By names of Deployments whose pods are starting."""
        self._timestamp_at: dict[str, datetime] = {}
        """By names of Nodes that were annotated."""
        for each in snapshot.rollouts():
            self._begin_with(each)

    def snapshot(self) -> Snapshot:
        return replace(
            self._first,
            resource=self._resource,
            nodes=tuple(self._nodes.values()),
            children={**NONE, **self._first.children, "Deployment": tuple(self._deployments.values())},
            now=self.now,
            writes=Writes(seen=self._first.writes.seen),
            readings=dict(self._readings()),
            backends=dict(self._backends()),
        )

    def apply(self, actions: Iterable[Action]) -> bool:
        """Whether any of them concerns the rollout: health checkers do not."""
        followed = [
            each for each in actions if each.target.kind in ("Deployment", "Node", "IngressDaemonSet")
        ]
        for each in followed:
            self._apply(self._answers.expected(each))
        return bool(followed)

    def report(self, status: Mapping[str, Any]) -> bool:
        """Store what later plans read of *status*; whether it changed. A person promotes a canary at once."""
        found = {name: status[name] for name in FIELDS if name in status}
        canary = found.get("canary", {})
        by_time = (rolling := self._rolling).canary and rolling.canary.pause.duration_seconds
        if not by_time and "completeSince" in canary and "promotedAt" not in canary:
            found["canary"] = promoted(canary, BY_HAND, self.now)
        if found == {name: each for name, each in self._resource.status.items() if name in FIELDS}:
            return False
        others = {name: each for name, each in self._resource.status.items() if name not in FIELDS}
        self._resource = changed(self._resource, status=others | found)
        return True

    @property
    def canary(self) -> Mapping[str, Any]:
        """As in the status."""
        found: Mapping[str, Any] = self._resource.status.get("canary") or {}
        return found

    @property
    def waves(self) -> Mapping[str, Any]:
        """As in the status."""
        found: Mapping[str, Any] = self._resource.status.get("waves") or {}
        return found

    def next_event(self) -> datetime | None:
        return min((*self._available_at.values(), *self._timestamp_at.values()), default=None)

    def advance(self, moment: datetime) -> None:
        """What has happened until *moment* has happened then."""
        self.now = moment
        for name in _due(self._available_at, moment):
            self._deployments[name] = _complete(self._deployments[name])
        for name in _due(self._timestamp_at, moment):
            if wanted := self._rolling.timestamp:
                noted = {"metadata": {"annotations": {wanted.key: moment.isoformat()}}}
                self._nodes[name] = _patched(self._nodes[name], noted)

    @property
    def _rolling(self) -> RollingUpdate:
        return self._resource.spec.update_strategy.rolling_update

    def _begin_with(self, rollout: NodeRollout) -> None:
        starts = rollout.phase in (Phase.UPDATING, Phase.STARTING) and not rollout.is_stuck(self.now)
        if starts and rollout.deployment is not None:
            since = rollout.baseline.updated if rollout.baseline else None
            self._deployments[rollout.name] = _unfinished(rollout.deployment)
            self._start_pods(rollout.name, rollout.node, since or self.now)
        wanted, detached = self._rolling.timestamp, self._rolling.node_annotation
        annotations = rollout.node.metadata.annotations
        if not wanted or not detached or detached.key not in annotations:
            return
        if rollout.lacks_timestamp or wanted.key not in annotations:
            since = rollout.node_mark.at if rollout.node_mark else self.now
            self._timestamp_at[rollout.node.name] = self._later(since, self._pace.timestamp)

    def _start_pods(self, name: str, node: FollowedNode | None, since: datetime) -> None:
        if node is not None and node.ready:
            self._available_at[name] = self._later(since, self._pace.pods)

    def _later(self, moment: datetime, seconds: float) -> datetime:
        """A moment that is over is now."""
        return max(self.now, moment + timedelta(seconds=seconds))

    def _readings(self) -> Iterable[tuple[str, tuple[Reading, ...]]]:
        """Of nodes that are detached by a Deployment, as health checkers that have seen all of it."""
        for held in self._deployments.values():
            mark = rollout_annotations.on_deployment(held.metadata.annotations)
            if mark is not None and mark.key in held.metadata.annotations:
                scheduled = held.metadata.annotations[SCHEDULED]
                seconds = (self.now - mark.at).total_seconds()
                state = State(
                    REFUSED,
                    uid=held.metadata.uid,
                    scheduled=scheduled,
                    detached_seconds=seconds,
                    connections=0,
                )
                ports = self._resource.spec.health_check_node_ports
                yield held.node, tuple(Reading("", port, state) for port in ports)

    def _backends(self) -> Iterable[tuple[str, tuple[NodeBackends, ...]]]:
        """As load balancers have them that change weights at once."""
        weights = self._rolling.weights
        for held in self._deployments.values():
            mark = rollout_annotations.on_deployment(held.metadata.annotations)
            if weights and mark:
                since = None if mark.attached else mark.at
                yield (
                    held.node,
                    tuple(NodeBackends(each, since, mark.attached) for each in weights.load_balancers),
                )

    def _apply(self, action: Action) -> None:
        kind, name = action.target.kind, action.target.name
        match action:
            case Delete():
                self._deployments.pop(name, None)
            case Create(body=body):
                created = msgspec.convert(_with_identity(body), Workload)
                self._deployments[name] = created
                self._start_pods(name, self._nodes.get(created.node), self.now)
            case Change(body=body) if kind == "IngressDaemonSet":
                status = _merged(self._resource.status, body.get("status") or {})
                finalizers = tuple(body["metadata"].get("finalizers", self._resource.metadata.finalizers))
                metadata = changed(self._resource.metadata, finalizers=finalizers)
                self._resource = changed(self._resource, metadata=metadata, status=status)
            case Change(body=body) if kind == "Node":
                self._change_node(name, body)
            case Change(body=body):
                self._change_deployment(name, body)

    def _change_node(self, name: str, body: Mapping[str, Any]) -> None:
        before = self._nodes[name].metadata.annotations
        self._nodes[name] = _patched(self._nodes[name], body)
        after, wanted = self._nodes[name].metadata.annotations, self._rolling.node_annotation
        if wanted is None or self._rolling.timestamp is None:
            return
        if wanted.key not in after:
            self._timestamp_at.pop(name, None)
        elif wanted.key not in before:
            self._timestamp_at[name] = self._later(self.now, self._pace.timestamp)

    def _change_deployment(self, name: str, body: Mapping[str, Any]) -> None:
        held = _patched(self._deployments[name], body)
        metadata = changed(held.metadata, generation=held.metadata.generation + 1)
        status = changed(held.status, observed_generation=metadata.generation)
        held = changed(held, metadata=metadata, status=status)
        self._deployments[name] = _unfinished(held) if "template" in body.get("spec", {}) else held
        self._answers.learn(self._deployments[name])
        if "spec" in body:
            self._start_pods(name, self._nodes.get(held.node), self.now)


def _due(dates: dict[str, datetime], moment: datetime) -> list[str]:
    """Those until *moment*, taken out."""
    found = [name for name, at in dates.items() if at <= moment]
    for name in found:
        del dates[name]
    return found


def _unfinished(held: Workload) -> Workload:
    """None of its pods is new, whatever its controller has noticed of that."""
    return changed(held, status=changed(held.status, updated_replicas=0, conditions=()))


def _complete(held: Workload) -> Workload:
    generation, count = held.metadata.generation, held.replicas
    return changed(held, status=WorkloadStatus(generation, count, count, count, DONE))


def _with_identity(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata = body["metadata"]
    return {**body, "metadata": {**metadata, "uid": f"simulated-{metadata['name']}", "generation": 1}}


def _patched(held: T, patch: Mapping[str, Any]) -> T:
    return msgspec.convert(_merged(msgspec.to_builtins(held), patch), type(held))


def _merged(held: Any, patch: Any) -> Any:
    """A merge patch, as RFC 7386 has it."""
    if not isinstance(patch, Mapping):
        return patch
    base = held if isinstance(held, Mapping) else {}
    values = {**base, **{name: _merged(base.get(name), each) for name, each in patch.items()}}
    return {name: each for name, each in values.items() if each is not None}
