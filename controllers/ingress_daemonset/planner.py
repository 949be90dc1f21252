"""From a snapshot to actions: never detach more nodes than allowed, nor update one before it is detached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from api.ingress_daemonset import FINALIZER
from api.ingress_daemonset.node_matching import FollowedNode
from api.ingress_daemonset.status import Phase
from api.ingress_daemonset.types import IngressDaemonSet, share
from controllers.ingress_daemonset import drains, rollout_annotations
from controllers.ingress_daemonset.canary import Query, canary_of, pause_of
from controllers.ingress_daemonset.children import Action, Change, change, target
from controllers.ingress_daemonset.drains import departures
from controllers.ingress_daemonset.drift import Altered
from controllers.ingress_daemonset.failures import failures_of, halting, is_return
from controllers.ingress_daemonset.health_checks import ChildResources
from controllers.ingress_daemonset.nodes import Clearance, NodeRollout, has_lasted, node_actions, with_former
from controllers.ingress_daemonset.pacing import (
    Pacing,
    closed_window_of,
    suspended,
    suspended_until,
    waves_of,
    window_of,
)
from controllers.ingress_daemonset.snapshot import Snapshot
from controllers.ingress_daemonset.status import (
    Findings,
    Unconfirmed,
    Undrained,
    status_of,
    unconfirmed,
    undrained,
)
from settings.ingress_daemonset import HealthChecker
from settings.windows import closes_at

Step = tuple[Action, ...]


@dataclass(frozen=True)
class Plan:
    """The actions of a step run in order, and none after one that failed.

    *requeue_at* is when time alone changes something; *status* is raw and complete.
    """

    steps: tuple[Step, ...] = ()
    requeue_at: datetime | None = None
    status: dict[str, Any] | None = None
    unconfirmed: tuple[Unconfirmed, ...] = ()
    rollouts: tuple[NodeRollout, ...] = ()
    """For the next plan, which reuses what has not changed."""
    undrained: tuple[Undrained, ...] = ()
    altered: tuple[Altered, ...] = ()
    """Objects that another writer changes repeatedly, so that they are left as they are."""
    unanswered: tuple[str, ...] = ()
    """Nodes of the canary whose health checkers are to be read."""
    query: Query | None = None
    """What is to be measured of the canary."""

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(action for step in self.steps for action in step)


def plan(snapshot: Snapshot, defaults: HealthChecker, before: Sequence[NodeRollout] = ()) -> Plan:
    """*defaults* are for health checkers; *before* has the rollouts of the last plan."""
    if snapshot.resource.metadata.deletion_timestamp is not None:
        return Plan(tuple((action,) for action in _ending(snapshot)))
    if suspended_until(snapshot.resource, snapshot.now):
        snapshot = replace(snapshot, resource=suspended(snapshot.resource))
    return _Planning(snapshot, defaults, before).plan()


def budget(resource: IngressDaemonSet, nodes: int) -> int:
    """Of *nodes*, how many may be detached at a time, or be degraded where nodes are not detached."""
    rolling = resource.spec.update_strategy.rolling_update
    return share(rolling.max_unavailable_nodes if rolling.detaches else rolling.max_degraded_nodes, nodes)


class _Planning:
    def __init__(self, snapshot: Snapshot, defaults: HealthChecker, before: Sequence[NodeRollout]) -> None:
        self._resource, self._writes, self._now = snapshot.resource, snapshot.writes, snapshot.now
        self._rollback = snapshot.rollback
        self._children = ChildResources(snapshot.resource, snapshot.children, defaults)
        self._rollouts = snapshot.rollouts(before)
        self._detaches = snapshot.resource.spec.update_strategy.rolling_update.detaches
        self._limit = budget(snapshot.resource, len(self._rollouts))
        self._closed = closed_window_of(snapshot.resource, snapshot.now)
        self._failures = failures_of(snapshot.resource, self._rollouts, snapshot.now)
        self._halting = halting(self._rollouts, self._failures, snapshot.now)
        self._halts = bool(self._halting) and not is_return(snapshot.resource, self._rollouts)
        served = {each.node.name for each in self._rollouts if not each.unmanaged}
        self._left = [node for node in _marked_nodes(snapshot) if node.name not in served]
        """Nodes that bear a mark of ours, and on which nothing of ours is left to update."""
        desired = {each.name for each in self._rollouts}
        without_node = [each for each in snapshot.children["Deployment"] if each.metadata.name not in desired]
        self._departures = departures(snapshot, without_node)
        self._canary = canary_of(
            self._resource, self._rollouts, snapshot.measured, is_blocked=self._is_blocked
        )
        self._waves = None if self._canary else waves_of(self._resource, self._rollouts)

    def plan(self) -> Plan:
        altered = (*(each.altered for each in self._rollouts if each.altered), *self._children.altered())
        begins = self._queue()
        upcoming = [*dict.fromkeys([*begins, *self._everyone()])]
        failed = self._rollback.stored.revision if self._rollback.stored else ""
        pacing = Pacing(
            self._limit,
            upcoming,
            self._canary,
            pause_of(self._resource),
            failed,
            self._waves,
            window_of(self._resource),
            self._closed,
            self._failures,
            self._halting,
        )
        findings = Findings(self._departures, self._children.unmanaged(), altered, pacing, self._rollback)
        return Plan(
            (*((each,) for each in self._single_actions()), *(each for each in self._steps() if each)),
            self._requeue_at(),
            status_of(self._resource, self._rollouts, findings, self._now),
            tuple(unconfirmed(self._rollouts, self._departures, self._now)),
            tuple(self._rollouts),
            tuple(undrained(self._rollouts, self._now)),
            altered,
            self._canary.unanswered if self._canary else (),
            self._canary.query if self._canary else None,
        )

    def _single_actions(self) -> Iterable[Action]:
        begins = not self._resource.spec.paused
        under_way = any(
            each.in_flight or each.draining or (begins and each.phase is Phase.OUTDATED)
            for each in self._rollouts
        )
        needed = bool(self._left) or under_way or self._writes.may_detach
        yield from (finalizer := [*_finalizer(self._resource, needed=needed)])
        # It would be for the same version as the finalizer.
        if (
            not finalizer
            and target("IngressDaemonSet", self._resource.metadata) not in self._writes.uncertain
        ):
            yield from drains.update_status(self._resource, self._rollouts, self._departures, self._now)
        for node in self._left:
            if target("Node", node.metadata) not in self._writes.uncertain:
                yield _attach(self._resource, node)
        yield from (each.action for each in self._departures if each.action)
        yield from self._children.actions("DaemonSet")

    def _steps(self) -> Iterable[Step]:
        yield tuple(self._children.actions("RoleBinding"))
        updates = {*self._updates()}
        chosen = updates | self._drains(updates) if _has_finalizer(self._resource) else set()
        waiting = self._waiting()
        for each in self._rollouts:
            if not each.uncertain:
                clearance = Clearance(each in chosen, each in waiting)
                yield tuple(node_actions(self._with_first_template(each), clearance, self._now))

    def _with_first_template(self, rollout: NodeRollout) -> NodeRollout:
        """*rollout*, with another template if the node is new, and may not have the present one yet."""
        former = self._rollback.former
        if former is None or rollout.deployment is not None or self._may_begin_with(rollout):
            return rollout
        return with_former(rollout, former)

    def _may_begin_with(self, rollout: NodeRollout) -> bool:
        """Whether a new node gets the present template."""
        if self._resource.spec.paused or self._canary or self._closed or not self._is_proven:
            return False
        return self._waves is None or self._waves.has_come(rollout)

    @cached_property
    def _is_proven(self) -> bool:
        """Pods that crash a while after they are available fail within the deadline."""
        return not self._failures.nodes and not self._halting and has_lasted(self._rollouts, self._now)

    def _waiting(self) -> set[NodeRollout]:
        """Those whose template stays as it is for now."""
        if self._resource.spec.paused:
            return {*self._rollouts}
        closed = self._closed
        withheld = {each for each in self._rollouts if closed.withholds(each)} if closed else set()
        withheld |= self._given_back()
        others = set[NodeRollout]()
        if self._canary:
            others = {*self._rollouts} - self._canary.nodes
        elif self._waves:
            others = self._waves.withheld
        return withheld | {each for each in others if not (self._is_blocked and each.is_stranded)}

    def _given_back(self) -> set[NodeRollout]:
        """Detached nodes whose template stays, since others fail with it, or as many as allowed are updated.

        Those that are only drained come last.
        """
        untouched = [each for each in self._rollouts if each.untouched]
        places = self._limit - (sum(each.in_flight for each in self._rollouts) - len(untouched))
        if self._halts or self._surplus:
            others = sum(not each.draining for each in untouched)
            places = 0 if self._halts else min(places, others - self._surplus)
        in_turn = sorted(untouched, key=lambda each: (each.draining, each.marked_at))
        return {*in_turn[max(0, places) :]}

    @property
    def _surplus(self) -> int:
        """How many more nodes count than the budget allows, while some fail with the template."""
        return max(0, self._counted - self._limit) if self._failures.with_template else 0

    def _updates(self) -> list[NodeRollout]:
        """Those whose update may begin now.

        Nodes that are unavailable anyway cost no further budget, but never are more updated at a time than allowed.
        With a surplus, one that counts anyway, as a cordoned one, would be detached and given back again and again.
        """
        if self._resource.spec.paused or self._halts or self._surplus:
            return []
        free = max(0, self._limit - self._used)
        waiting = self._queue()
        in_flight = sum(each.in_flight for each in self._rollouts)
        first = sum(self._counts(each) for each in waiting)
        return waiting[: first + free][: max(0, self._limit - in_flight)]

    def _queue(self) -> list[NodeRollout]:
        """Those that wait for their update and may begin, in the order of their turns."""
        begins: Sequence[NodeRollout] = self._rollouts
        if self._canary:
            begins = self._canary.begins
        elif self._waves:
            begins = self._waves.begins
            if begins and self._is_blocked:
                begins = [*dict.fromkeys([*begins, *(each for each in self._rollouts if each.lost)])]
        if closed := self._closed:
            begins = [each for each in begins if not closed.withholds(each)]
        return sorted(self._in_order(begins), key=lambda each: not self._counts(each))

    def _everyone(self) -> list[NodeRollout]:
        """Whatever they wait for."""
        waiting = sorted(self._in_order(self._rollouts), key=lambda each: not self._counts(each))
        return self._waves.in_order(waiting) if self._waves else waiting

    def _counts(self, rollout: NodeRollout) -> bool:
        """Against the budget."""
        lacks = rollout.unavailable if self._detaches else rollout.degraded
        return lacks or rollout.node.name in self._failures.nodes

    @property
    def _leaving(self) -> set[str]:
        """Nodes that keep their place in the budget until it is known that they have left."""
        marked = {each.name for each in self._left} if self._detaches else set()
        return marked | {each.node for each in self._departures if each.counts}

    @property
    def _counted(self) -> int:
        return sum(self._counts(each) for each in self._rollouts)

    @property
    def _used(self) -> int:
        """Of the budget."""
        return self._counted + len(self._leaving)

    @cached_property
    def _is_blocked(self) -> bool:
        """Whether nodes use up the budget though none is being updated: what they lack may be in the new template."""
        under_way = (each.in_flight and each.node.ready and not each.is_stranded for each in self._rollouts)
        return self._used >= self._limit and not any(under_way)

    def _in_order(self, rollouts: Iterable[NodeRollout]) -> list[NodeRollout]:
        """NotReady nodes come last, when no other is left: they could use up the budget indefinitely."""
        waiting = [each for each in rollouts if each.phase is Phase.OUTDATED]
        ready = [each for each in waiting if each.node.ready]
        busy = any(each.in_flight and each.node.ready for each in self._rollouts)
        return ready if ready or busy else waiting

    def _drains(self, updates: Set[NodeRollout]) -> set[NodeRollout]:
        """Those that are detached to be drained, within what *updates* that begin now leave of the budget.

        A node that is cordoned or about to be deleted does not wait for the budget: that is an administrator's
        decision, while anyone who reaches the webhook can request an eviction.
        """
        draining = [each for each in self._rollouts if each.draining and not drains.is_over(each, self._now)]
        failing = self._failures.nodes
        taken = {each for each in self._rollouts if each.unavailable or each.node.name in failing} | updates
        waiting = [each for each in draining if each not in taken]
        return taken.intersection(draining).union(waiting[: max(0, self._limit - len(taken))])

    def _requeue_at(self) -> datetime | None:
        waits = [each.goes_at for each in self._departures]
        waits += [drains.times_out(self._resource, each) for each in self._resource.drain_requests.values()]
        waits += [self._failures.ends_at(each) for each in self._failures.nodes]
        waits.append(suspended_until(self._resource, self._now))
        if self._canary:
            waits += [self._canary.ends_at, self._canary.fails_at]
        if self._waves:
            waits.append(self._waves.pause_ends_at)
        waiting = any(each.phase in (Phase.OUTDATED, Phase.DETACHING) for each in self._rollouts)
        if waiting and (window := window_of(self._resource)):
            waits.append(self._closed.opens_at if self._closed else closes_at(window, self._now))
        for each in self._rollouts:
            waits += [each.overdue_at, each.judged_at, each.settled_at, each.attach_doubt_ends_at]
            if each.is_detaching:
                waits += [each.detached_at, each.doubt_ends_at, each.connections_end_at]
        return min((each for each in waits if each is not None and each > self._now), default=None)


def _ending(snapshot: Snapshot) -> Iterable[Action]:
    """Attach nodes first: without the finalizer, it is unknown whose annotations they bear."""
    marked = [*_marked_nodes(snapshot)]
    yield from (_attach(snapshot.resource, node) for node in marked)
    # The API server allows no new finalizer on a terminating object.
    if _has_finalizer(snapshot.resource):
        yield from _finalizer(snapshot.resource, needed=bool(marked) or snapshot.writes.may_detach)


def _finalizer(resource: IngressDaemonSet, *, needed: bool) -> Iterable[Action]:
    """Only during a rollout: at rest, a deletion needs no Drawbridge."""
    if needed != _has_finalizer(resource):
        others = [each for each in resource.metadata.finalizers if each != FINALIZER]
        finalizers = [*others, FINALIZER] if needed else others
        yield change("IngressDaemonSet", resource.metadata, {"finalizers": finalizers})


def _has_finalizer(resource: IngressDaemonSet) -> bool:
    return FINALIZER in resource.metadata.finalizers


def _marked_nodes(snapshot: Snapshot) -> Iterable[FollowedNode]:
    uid = snapshot.resource.metadata.uid
    return (node for node in snapshot.nodes if rollout_annotations.attach(node.metadata.annotations, uid))


def _attach(resource: IngressDaemonSet, node: FollowedNode) -> Change:
    changes = rollout_annotations.attach(node.metadata.annotations, resource.metadata.uid)
    return change("Node", node.metadata, {"annotations": changes})
