"""How a rollout will go: the planner, played forward against a simulated cluster.

That does at once what a plan writes, and its pods take the time that is given. What others do is taken out of the spec:
they confirm detachments, write timestamps and end connections as soon as they may.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace as changed

from api.ingress_daemonset.node_matching import FollowedNode
from api.ingress_daemonset.status import (
    CanaryStatus,
    Phase,
    Promotion,
    Status,
    WavesStatus,
    raw_of,
    status_of,
)
from api.ingress_daemonset.types import OFF, Annotation, Canary, IngressDaemonSet, Timestamp, Weights
from controllers.ingress_daemonset.canary import promoted, stored_canary
from controllers.ingress_daemonset.children import (
    COMPLETE,
    Action,
    Change,
    Children,
    Create,
    Delete,
    Workload,
    WorkloadStatus,
    Writes,
)
from controllers.ingress_daemonset.drift import Answers
from controllers.ingress_daemonset.nodes import NodeRollout, why
from controllers.ingress_daemonset.planner import Plan, plan
from controllers.ingress_daemonset.rollout import budget
from controllers.ingress_daemonset.snapshot import Snapshot
from kube.types import Condition, Value
from settings.ingress_daemonset import HealthChecker

T = TypeVar("T", bound=Value)
NONE: Children = {"DaemonSet": (), "RoleBinding": ()}
"""Health checkers are not simulated, so their objects may be left out."""
FIELDS = ("currentRevision", "currentDigest", "canary", "waves")
DONE = (Condition("Progressing", "True", COMPLETE),)


class SimulatedCluster:
    """*pods* take so many seconds until all of a new template are available; none start on a NotReady node."""

    def __init__(self, snapshot: Snapshot, pods: float) -> None:
        self.now, self._pods = snapshot.now, timedelta(seconds=pods)
        self._first, self._resource = snapshot, snapshot.resource
        self._nodes = {each.name: each for each in snapshot.nodes}
        self._deployments: dict[str, Workload] = {
            each.metadata.name: each for each in snapshot.children["Deployment"]
        }
        self._answers = Answers()
        self._available_at: dict[str, datetime] = {}
        """By names of Deployments whose pods are starting."""
        for each in snapshot.rollouts():
            starts = each.phase in (Phase.UPDATING, Phase.STARTING) and not each.is_stuck(self.now)
            if starts and each.deployment is not None:
                since = each.baseline.updated if each.baseline else None
                self._deployments[each.name] = _unfinished(each.deployment)
                self._start_pods(each.name, each.node, since or self.now)

    def snapshot(self) -> Snapshot:
        return replace(
            self._first,
            resource=self._resource,
            nodes=tuple(self._nodes.values()),
            children={**NONE, **self._first.children, "Deployment": tuple(self._deployments.values())},
            now=self.now,
            writes=Writes(seen=self._first.writes.seen),
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
        canary = status_of(found).canary
        wanted = self._resource.spec.update_strategy.rolling_update.canary
        by_time = wanted and wanted.pause.duration_seconds
        if canary and canary.complete_since and not canary.promoted_at and not by_time:
            found["canary"] = raw_of(promoted(canary, Promotion.BY_HAND, self.now))
        if found == {name: each for name, each in self._resource.status.items() if name in FIELDS}:
            return False
        others = {name: each for name, each in self._resource.status.items() if name not in FIELDS}
        self._resource = changed(self._resource, status=others | found)
        return True

    @property
    def stored(self) -> Status:
        return self._resource.stored

    def next_event(self) -> datetime | None:
        return min(self._available_at.values(), default=None)

    def advance(self, moment: datetime) -> None:
        """What has happened until *moment* has happened then."""
        self.now = moment
        for name in [name for name, at in self._available_at.items() if at <= moment]:
            del self._available_at[name]
            self._deployments[name] = _complete(self._deployments[name])

    def _start_pods(self, name: str, node: FollowedNode | None, since: datetime) -> None:
        """Those that are late come now."""
        if node is not None and node.ready:
            self._available_at[name] = max(self.now, since + self._pods)

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
                self._nodes[name] = _patched(self._nodes[name], body)
            case Change(body=body):
                self._change_deployment(name, body)

    def _change_deployment(self, name: str, body: Mapping[str, Any]) -> None:
        held = _patched(self._deployments[name], body)
        metadata = changed(held.metadata, generation=held.metadata.generation + 1)
        status = changed(held.status, observed_generation=metadata.generation)
        held = changed(held, metadata=metadata, status=status)
        self._deployments[name] = _unfinished(held) if "template" in body.get("spec", {}) else held
        self._answers.learn(self._deployments[name])
        if "spec" in body:
            self._start_pods(name, self._nodes.get(held.node), self.now)


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


PLANS_PER_NODE = 20
"""More than any rollout needs: a play that does not come to rest is cut off."""
SLACK = 100


@dataclass(frozen=True)
class Step:
    """A node's turn: detached or, where nodes are not, replaced from *begins_at* until it is back at *ends_at*.

    *replaced_at* is when its pods get the new template. What does not happen is None.
    """

    node: str
    begins_at: datetime
    replaced_at: datetime | None = None
    ends_at: datetime | None = None


@dataclass(frozen=True)
class Left:
    """A node that is not up to date in the end, and why."""

    node: str
    phase: Phase
    why: str


@dataclass(frozen=True)
class Pause:
    """After the canary; without *ends_at*, a person promotes it, which takes no time here."""

    begins_at: datetime
    ends_at: datetime | None = None


@dataclass(frozen=True)
class WavePause:
    """After the wave of the nodes with a value of the label; empty is that of those without."""

    wave: str
    begins_at: datetime


@dataclass(frozen=True)
class Forecast:
    """*steps* are in their order; at most *limit* of *nodes* are under way at a time.

    *remaining* nodes were waiting when the play was cut off; *ends_at* is estimated for them, too. It is None when
    there is nothing to do.
    """

    nodes: int
    limit: int
    steps: tuple[Step, ...] = ()
    left: tuple[Left, ...] = ()
    remaining: int = 0
    ends_at: datetime | None = None
    pause: Pause | None = None
    wave_pauses: tuple[WavePause, ...] = ()

    @property
    def waves(self) -> tuple[tuple[Step, ...], ...]:
        """Steps that begin together."""
        return tuple(tuple(wave) for _, wave in groupby(self.steps, key=lambda each: each.begins_at))


def forecast(snapshot: Snapshot, defaults: HealthChecker, pods: float, plans: int | None = None) -> Forecast:
    """*plans* bounds the work: that many calls of the planner. Only graces, pauses and *pods* take time, in seconds."""
    if snapshot.resource.metadata.deletion_timestamp is not None:
        return Forecast(0, 0)
    snapshot = replace(snapshot, resource=foreseeable(snapshot.resource))
    cluster, record = SimulatedCluster(snapshot, pods), _Record(snapshot.now)
    bound = SLACK + PLANS_PER_NODE * len(snapshot.nodes) if plans is None else plans
    for _ in range(bound):
        planned = plan(cluster.snapshot(), defaults, record.rollouts)
        record.note(planned.rollouts, cluster.now)
        is_changed = cluster.apply(planned.actions)
        if cluster.report(planned.status or {}) or is_changed:
            record.pause = _pause(cluster.stored.canary) or record.pause
            record.note_wave(cluster.stored.waves)
            continue
        events = [each for each in (cluster.next_event(), planned.requeue_at) if each is not None]
        if not events:
            return record.forecast(cluster.now)
        cluster.advance(min(events))
    return record.cut_off(planned)


def foreseeable(resource: IngressDaemonSet) -> IngressDaemonSet:
    """*resource* without what others do: the graces that begin with that begin with the annotations."""
    rolling = resource.spec.update_strategy.rolling_update
    rolling = changed(
        rolling,
        annotate_deployment_to_detach=_with_grace(rolling.deployment_annotation, rolling.weights),
        annotate_node_to_detach=_with_grace(rolling.node_annotation, rolling.timestamp),
        wait_for_detachment_by_annotated_timestamp=None,
        set_weight_to_detach=None,
        wait_for_connections=None,
        confirm=OFF,
        canary=_with_good_metric(resource, rolling.canary),
    )
    strategy = changed(resource.spec.update_strategy, rolling_update=rolling)
    return changed(resource, spec=changed(resource.spec, update_strategy=strategy))


def _with_grace(annotation: Annotation | None, other: Weights | Timestamp | None) -> Annotation | None:
    """The longer one."""
    if annotation is None or other is None:
        return annotation
    longest = max(annotation.grace_period_seconds, other.grace_period_seconds)
    return changed(annotation, grace_period_seconds=longest)


def _with_good_metric(resource: IngressDaemonSet, canary: Canary | None) -> Canary | None:
    """It has no metric, and pauses for the time in which it has to be good; by hand when it has failed."""
    if canary is None or canary.metric is None:
        return canary
    seconds = max(canary.pause.duration_seconds, canary.metric.for_seconds, 1)
    metric = stored_canary(resource).metric
    if metric and metric.failed_at:
        seconds = 0
    return changed(canary, metric=None, pause=changed(canary.pause, duration_seconds=seconds))


@dataclass
class _Record:
    """What became of each node, in the order in which nodes began."""

    began: datetime
    rollouts: tuple[NodeRollout, ...] = ()
    pause: Pause | None = None
    wave_pauses: tuple[WavePause, ...] = ()
    _steps: dict[str, Step] = field(default_factory=dict)

    def note_wave(self, waves: WavesStatus | None) -> None:
        """One that is complete, once."""
        if waves and waves.completed_at:
            found = WavePause(waves.current or "", waves.completed_at)
            if found not in self.wave_pauses:
                self.wave_pauses = (*self.wave_pauses, found)

    def note(self, rollouts: tuple[NodeRollout, ...], now: datetime) -> None:
        unchanged = set(map(id, self.rollouts))
        for each in rollouts:
            if id(each) not in unchanged:
                self._note(each, now)
        self.rollouts = rollouts

    def _note(self, rollout: NodeRollout, now: datetime) -> None:
        name = rollout.node.name
        step = self._steps.get(name)
        if step is None and rollout.in_flight and not rollout.draining:
            since = [mark.at for mark in (rollout.deployment_mark, rollout.node_mark) if mark]
            step = Step(name, min(since, default=now))
        if step is None or step.ends_at is not None:
            return
        if step.replaced_at is None and rollout.phase in (Phase.UPDATING, Phase.ATTACHING):
            updated = rollout.baseline.updated if rollout.baseline else None
            step = replace(step, replaced_at=updated or now)
        if not rollout.in_flight:
            step = replace(step, ends_at=now)
        self._steps[name] = step

    def forecast(self, now: datetime) -> Forecast:
        """Of a play that has come to rest: what is not up to date by now never will be."""
        waiting = [node for node in self.rollouts if node.phase is not Phase.CURRENT]
        left = tuple(Left(node.node.name, node.phase, why(node, now)) for node in waiting)
        ends_at = max((step.ends_at for step in self._steps.values() if step.ends_at), default=None)
        return replace(self._forecast, left=left, ends_at=ends_at)

    def cut_off(self, planned: Plan) -> Forecast:
        """The rest is estimated as for the status of the last plan."""
        remaining = sum(node.phase is Phase.OUTDATED for node in self.rollouts)
        rollout = status_of(planned.status or {}).rollout
        return replace(
            self._forecast, remaining=remaining, ends_at=rollout.estimated_end if rollout else None
        )

    @property
    def _forecast(self) -> Forecast:
        limit = budget(self.rollouts[0].resource, len(self.rollouts)) if self.rollouts else 0
        steps = tuple(sorted(self._steps.values(), key=lambda step: (step.begins_at, step.node)))
        return Forecast(len(self.rollouts), limit, steps, pause=self.pause, wave_pauses=self.wave_pauses)


def _pause(canary: CanaryStatus | None) -> Pause | None:
    if canary is None or canary.complete_since is None or canary.promoted_at is None:
        return None
    is_by_hand = canary.promoted_by == Promotion.BY_HAND
    return Pause(canary.complete_since, None if is_by_hand else canary.promoted_at)
