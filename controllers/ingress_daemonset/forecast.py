"""How a rollout will go: the planner, played forward against a simulated cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from statistics import median
from typing import Any

from msgspec.structs import replace as changed

from api.ingress_daemonset.types import IngressDaemonSet, time_of
from controllers.ingress_daemonset.canary import BY_HAND, stored_canary
from controllers.ingress_daemonset.node_rollout import NodeRollout, Phase
from controllers.ingress_daemonset.planner import budget, plan
from controllers.ingress_daemonset.reasons import why
from controllers.ingress_daemonset.simulated_cluster import Pace, SimulatedCluster
from controllers.ingress_daemonset.snapshot import Snapshot
from settings.ingress_daemonset import HealthChecker

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


def forecast(snapshot: Snapshot, defaults: HealthChecker, pace: Pace, plans: int | None = None) -> Forecast:
    """*plans* bounds the work: that many calls of the planner. Graces and *pace* are the only time that passes."""
    if snapshot.resource.metadata.deletion_timestamp is not None:
        return Forecast(0, 0)
    snapshot = replace(snapshot, resource=with_good_metric(snapshot.resource))
    cluster, record = SimulatedCluster(snapshot, pace), _Record(snapshot.now)
    bound = SLACK + PLANS_PER_NODE * len(snapshot.nodes) if plans is None else plans
    for _ in range(bound):
        planned = plan(cluster.snapshot(), defaults, record.rollouts)
        record.note(planned.rollouts, cluster.now)
        is_changed = cluster.apply(planned.actions)
        if cluster.report(planned.status or {}) or is_changed:
            record.pause = _pause(cluster.canary) or record.pause
            record.note_wave(cluster.waves)
            continue
        events = [each for each in (cluster.next_event(), planned.requeue_at) if each is not None]
        if not events:
            return record.forecast(snapshot, cluster.now, is_over=True)
        cluster.advance(min(events))
    return record.forecast(snapshot, cluster.now, is_over=False)


def with_good_metric(resource: IngressDaemonSet) -> IngressDaemonSet:
    """Whose canary has no metric, and pauses for the time in which it has to be good; by hand when it has failed."""
    canary = resource.spec.update_strategy.rolling_update.canary
    if canary is None or canary.metric is None:
        return resource
    seconds = max(canary.pause.duration_seconds, canary.metric.for_seconds, 1)
    if "failedAt" in stored_canary(resource).get("metric", {}):
        seconds = 0
    canary = changed(canary, metric=None, pause=changed(canary.pause, duration_seconds=seconds))
    rolling = changed(resource.spec.update_strategy.rolling_update, canary=canary)
    strategy = changed(resource.spec.update_strategy, rolling_update=rolling)
    return changed(resource, spec=changed(resource.spec, update_strategy=strategy))


@dataclass
class _Record:
    """What became of each node, in the order in which nodes began."""

    began: datetime
    rollouts: tuple[NodeRollout, ...] = ()
    pause: Pause | None = None
    wave_pauses: tuple[WavePause, ...] = ()
    _steps: dict[str, Step] = field(default_factory=dict)

    def note_wave(self, waves: Mapping[str, Any]) -> None:
        """One that is complete, once."""
        completed = time_of(waves.get("completedAt", ""))
        if completed and (found := WavePause(waves["current"], completed)) not in self.wave_pauses:
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

    def forecast(self, snapshot: Snapshot, now: datetime, *, is_over: bool) -> Forecast:
        waiting = [each for each in self.rollouts if each.phase is not Phase.CURRENT]
        remaining = 0 if is_over else sum(each.phase is Phase.OUTDATED for each in waiting)
        limit = budget(snapshot.resource, len(self.rollouts))
        steps = tuple(sorted(self._steps.values(), key=lambda each: (each.begins_at, each.node)))
        left = tuple(Left(each.node.name, each.phase, why(each, now)) for each in waiting if is_over)
        ends_at = _estimated(steps, remaining, limit, now)
        return Forecast(
            len(self.rollouts), limit, steps, left, remaining, ends_at, self.pause, self.wave_pauses
        )


def _pause(canary: Mapping[str, Any]) -> Pause | None:
    began, ended = (time_of(canary.get(name, "")) for name in ("completeSince", "promotedAt"))
    if began is None or ended is None:
        return None
    return Pause(began, None if canary["promotedBy"] == BY_HAND else ended)


def _estimated(steps: Sequence[Step], remaining: int, limit: int, now: datetime) -> datetime | None:
    """When the last node is back; *remaining* ones take as long as those before."""
    ended = [(each.begins_at, each.ends_at) for each in steps if each.ends_at is not None]
    if not remaining:
        return max((end for _, end in ended), default=None)
    if not ended or not limit:
        return None
    turn = median((end - begin).total_seconds() for begin, end in ended)
    return now + timedelta(seconds=turn * -(-remaining // limit))
