"""How a rollout will go: the planner, played forward against a simulated cluster.

That does at once what a plan writes, and its pods take the time that is given. What others do is taken out of the spec:
they confirm detachments and end connections as soon as they may, and write timestamps at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace as changed

from api.ingress_daemonset.status import CanaryStatus, Phase, Promotion, Status, raw_of
from api.ingress_daemonset.template import FollowedNode
from api.ingress_daemonset.types import OFF, IngressDaemonSet
from controllers.ingress_daemonset.children import (
    COMPLETE,
    STUCK,
    Action,
    Change,
    Create,
    Delete,
    Workload,
    WorkloadStatus,
    Writes,
    version_of,
)
from controllers.ingress_daemonset.detachment import holders_of
from controllers.ingress_daemonset.drift import Answers
from controllers.ingress_daemonset.health_checks import HealthCheckers
from controllers.ingress_daemonset.nodes import NodeRollout, why
from controllers.ingress_daemonset.pacing import promoted, stored_canary, wave_name
from controllers.ingress_daemonset.planner import Plan, plan
from controllers.ingress_daemonset.rollout import Snapshot, budget
from controllers.ingress_daemonset.status import Pace
from kube.types import Condition, Value

T = TypeVar("T", bound=Value)
FIELDS = ("currentRevision", "currentDigest", "canary", "waves", "failures")


class SimulatedCluster:
    """*pods* take so many seconds until all of a new template are available; none start on a NotReady node."""

    def __init__(self, snapshot: Snapshot, pods: float) -> None:
        self.now, self._pods = snapshot.now, timedelta(seconds=pods)
        self._first, self.resource = snapshot, snapshot.resource
        self._nodes = {each.name: each for each in snapshot.nodes}
        self._deployments: dict[str, Workload] = {each.metadata.name: each for each in snapshot.deployments}
        self._answers = Answers()
        self._available_at: dict[str, datetime] = {}
        """By names of Deployments whose pods are starting."""
        for each in snapshot.rollouts():
            held = each.deployment
            is_late = each.stuck_at is not None and each.stuck_at <= self.now
            is_begun = each.phase in (Phase.UPDATING, Phase.DRAINING) and not is_late
            is_first = each.lacks_pods and not each.lost and held and held.progress != STUCK
            if held and not held.is_terminating and not held.rolled_out and (is_begun or is_first):
                self._deployments[each.name] = _unfinished(held)
                self._start_pods(each.name, each.node, each.updated_at or self.now)

        for name in self._nodes:
            self._confirm(name)

    def _confirm(self, name: str) -> None:
        """Write the timestamp of its detachment as soon as the Node is annotated."""
        rolling = self.resource.spec.update_strategy.rolling_update
        node, wanted, annotation = self._nodes[name], rolling.timestamp, rolling.node_annotation
        held = node.metadata.annotations
        mark = holders_of(held).get(self.resource.metadata.uid)
        if (
            wanted
            and annotation
            and annotation.key in held
            and held.get(wanted.key) in (None, mark and mark.stale)
        ):
            annotations = {**held, wanted.key: self.now.isoformat()}
            self._nodes[name] = changed(node, metadata=changed(node.metadata, annotations=annotations))

    def snapshot(self) -> Snapshot:
        return replace(
            self._first,
            resource=self.resource,
            nodes=tuple(self._nodes.values()),
            deployments=tuple(self._deployments.values()),
            now=self.now,
            writes=Writes(seen=self._first.writes.seen),
        )

    def apply(self, actions: Iterable[Action]) -> None:
        for each in actions:
            self._apply(self._answers.expected(each))

    def report(self, status: Status) -> bool:
        """Store what later plans read of *status*; whether it changed. A person promotes a canary at once."""
        canary = status.canary
        wanted = self.resource.spec.update_strategy.rolling_update.canary
        by_time = wanted and wanted.pause.duration_seconds
        if canary and canary.complete_since and not canary.promoted_at and not by_time:
            status = changed(status, canary=promoted(canary, Promotion.BY_HAND, self.now))
        found = {name: part for name, part in raw_of(status).items() if name in FIELDS}
        stored = {name: part for name, part in self.resource.status.items() if name not in FIELDS} | found
        if stored == self.resource.status:
            return False
        self.resource = changed(self.resource, status=stored)
        return True

    @property
    def next_event(self) -> datetime | None:
        return min(self._available_at.values(), default=None)

    def advance(self, moment: datetime) -> None:
        """What has happened until *moment* has happened then."""
        self.now = moment
        for name in [name for name, at in self._available_at.items() if at <= moment]:
            del self._available_at[name]
            held = self._deployments[name]
            count, done = held.replicas, (Condition("Progressing", "True", COMPLETE),)
            status = WorkloadStatus(held.metadata.generation, count, count, count, done)
            self._deployments[name] = changed(held, status=status)

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
                identity = {"uid": f"simulated-{name}", "generation": 1}
                created = msgspec.convert({**body, "metadata": {**body["metadata"], **identity}}, Workload)
                self._deployments[name] = created
                self._start_pods(name, self._nodes.get(created.node), self.now)
            case Change(body=body) if kind == "IngressDaemonSet":
                status = _merged(self.resource.status, body.get("status") or {})
                finalizers = tuple(body["metadata"].get("finalizers", self.resource.metadata.finalizers))
                metadata = changed(self.resource.metadata, finalizers=finalizers)
                self.resource = changed(self.resource, metadata=metadata, status=status)
            case Change(body=body) if kind == "Node":
                self._nodes[name] = _patched(self._nodes[name], body)
                self._confirm(name)
            case Change(body=body):
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


def _patched(held: T, patch: Mapping[str, Any]) -> T:
    return msgspec.convert(_merged(msgspec.to_builtins(held), patch), type(held))


def _merged(held: Any, patch: Any) -> Any:
    """A merge patch, as RFC 7386 has it."""
    if not isinstance(patch, Mapping):
        return patch
    base = held if isinstance(held, Mapping) else {}
    values = {**base, **{name: _merged(base.get(name), each) for name, each in patch.items()}}
    return {name: each for name, each in values.items() if each is not None}


NODE_VISITS = 60_000
"""A bound of the work: calls of the planner, times the nodes that each looks at. A few seconds."""
LEAST_PLANS = 100
AT_REST = timedelta(days=15)
"""Without a change: a window that opens and closes brings none then, and a pause of the longest is over."""


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
    """*after* the canary or a wave; without *seconds*, a person promotes the canary, which takes no time here."""

    after: str
    begins_at: datetime
    seconds: int | None = None


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
    pauses: tuple[Pause, ...] = ()

    @property
    def waves(self) -> tuple[tuple[Step, ...], ...]:
        """Steps that begin together."""
        return tuple(tuple(wave) for _, wave in groupby(self.steps, key=lambda each: each.begins_at))


def forecast(snapshot: Snapshot, pace: Pace, plans: int | None = None) -> Forecast:
    """Only graces, pauses, and what has a *pace* take time. *plans* is after how many the play is cut off."""
    if snapshot.resource.metadata.deletion_timestamp is not None:
        return Forecast(0, 0)
    # Neither health checkers nor revisions are simulated.
    resource = foreseeable(snapshot.resource, pace.waits)
    snapshot = replace(snapshot, resource=resource, checkers=HealthCheckers(), recorded=())
    cluster, record = SimulatedCluster(snapshot, pace.pods), _Record(resource.stored.canary)
    changed_at = snapshot.now
    for _ in range(plans or max(LEAST_PLANS, NODE_VISITS // max(1, len(snapshot.nodes)))):
        planned = plan(cluster.snapshot(), record.rollouts)
        record.note(planned.rollouts, cluster.now)
        cluster.apply(planned.actions)
        if cluster.report(planned.status or Status()) or planned.actions:
            record.note_pauses(cluster.resource)
            changed_at = cluster.now
            continue
        events = [each for each in (cluster.next_event, planned.requeue_at) if each is not None]
        if not events or min(events) - changed_at > AT_REST:
            return record.forecast(cluster.now)
        cluster.advance(min(events))
    return record.cut_off(planned)


def foreseeable(resource: IngressDaemonSet, waits: float) -> IngressDaemonSet:
    """*resource* without what others do: the grace that begins with weight 0 begins with the annotation.

    Where it *waits*, that is so many seconds after the longest grace.

    The canary has no metric, and pauses for the time in which that has to be good; by hand when it has failed.
    """
    rolling = resource.spec.update_strategy.rolling_update
    annotation, canary = rolling.deployment_annotation, rolling.canary
    if annotation:
        ways = (annotation, rolling.weights)
        longest = max(each.grace_period_seconds for each in ways if each)
        if waits:
            longest = rolling.grace_seconds + round(waits)
        annotation = changed(annotation, grace_period_seconds=longest)
    if canary and canary.metric:
        metric = stored_canary(resource, version_of(resource)).metric
        seconds = max(canary.pause.duration_seconds, canary.metric.for_seconds, 1)
        if metric and metric.failed_at:
            seconds = 0
        canary = changed(canary, metric=None, pause=changed(canary.pause, duration_seconds=seconds))
    rolling = changed(
        rolling,
        annotate_deployment_to_detach=annotation,
        set_weight_to_detach=None,
        wait_for_connections=None,
        confirm=OFF,
        canary=canary,
    )
    strategy = changed(resource.spec.update_strategy, rolling_update=rolling)
    return changed(resource, spec=changed(resource.spec, update_strategy=strategy))


@dataclass
class _Record:
    """What became of each node, in the order in which nodes began."""

    canary: CanaryStatus | None
    """At first: one that was promoted by then has no pause ahead."""
    rollouts: tuple[NodeRollout, ...] = ()
    _pauses: dict[Pause, None] = field(default_factory=dict)
    _steps: dict[str, Step] = field(default_factory=dict)

    def note_pauses(self, resource: IngressDaemonSet) -> None:
        """After the canary, and after a wave that is complete, once."""
        canary, waves = resource.stored.canary, resource.stored.waves
        wanted = resource.spec.update_strategy.rolling_update.waves
        if canary and canary != self.canary and canary.complete_since and canary.promoted_at:
            is_by_hand = canary.promoted_by == Promotion.BY_HAND
            lasts = canary.promoted_at - canary.complete_since
            seconds = None if is_by_hand else round(lasts.total_seconds())
            self._pauses[Pause("the canary", canary.complete_since, seconds)] = None
        if wanted and waves and waves.completed_at:
            name, seconds = wave_name(wanted.by_label, waves.current or ""), wanted.pause.duration_seconds
            self._pauses[Pause(name, waves.completed_at, seconds)] = None

    def note(self, rollouts: tuple[NodeRollout, ...], now: datetime) -> None:
        self.rollouts = rollouts
        for each in rollouts:
            step = self._steps.get(each.node.name)
            if step is None and (not each.in_flight or each.draining):
                continue
            step = step or Step(each.node.name, each.marked_at)
            if step.ends_at:
                continue
            if step.replaced_at is None and each.phase in (Phase.UPDATING, Phase.ATTACHING):
                step = replace(step, replaced_at=each.updated_at or now)
            if not each.in_flight:
                step = replace(step, ends_at=now)
            self._steps[each.node.name] = step

    def forecast(self, now: datetime) -> Forecast:
        """Of a play that has come to rest: what is not up to date by now never will be."""
        waiting = [node for node in self.rollouts if node.phase is not Phase.CURRENT]
        left = tuple(Left(node.node.name, node.phase, why(node, now)) for node in waiting)
        ends_at = max((step.ends_at for step in self._steps.values() if step.ends_at), default=None)
        return replace(self._forecast, left=left, ends_at=ends_at)

    def cut_off(self, planned: Plan) -> Forecast:
        """The rest is estimated as for the status of the last plan."""
        remaining = sum(node.phase is Phase.OUTDATED for node in self.rollouts)
        rollout = planned.status.rollout if planned.status else None
        return replace(
            self._forecast, remaining=remaining, ends_at=rollout.estimated_end if rollout else None
        )

    @property
    def _forecast(self) -> Forecast:
        limit = budget(self.rollouts[0].resource, len(self.rollouts)) if self.rollouts else 0
        steps = tuple(sorted(self._steps.values(), key=lambda step: (step.begins_at, step.node)))
        return Forecast(len(self.rollouts), limit, steps, pauses=(*self._pauses,))
