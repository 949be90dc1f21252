"""From a snapshot to actions: never detach more nodes than allowed, nor update one before it is detached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from api.ingress_daemonset import FINALIZER
from api.ingress_daemonset.node_matching import FollowedNode
from api.ingress_daemonset.status import Phase
from api.ingress_daemonset.types import IngressDaemonSet
from controllers.ingress_daemonset import drains, rollout_annotations
from controllers.ingress_daemonset.canary import Query
from controllers.ingress_daemonset.children import Action, Change, change, target
from controllers.ingress_daemonset.drift import Altered
from controllers.ingress_daemonset.nodes import Clearance, NodeRollout, node_actions
from controllers.ingress_daemonset.pacing import suspended, suspended_until
from controllers.ingress_daemonset.rollout import Rollout, marked_nodes
from controllers.ingress_daemonset.snapshot import Snapshot
from controllers.ingress_daemonset.status import Unconfirmed, Undrained, status_of, unconfirmed, undrained
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
    rollout = Rollout(snapshot, defaults, before)
    return Plan(
        (*((each,) for each in _single_actions(rollout)), *(step for step in _steps(rollout) if step)),
        _requeue_at(rollout),
        status_of(rollout),
        tuple(unconfirmed(rollout)),
        tuple(rollout.nodes),
        tuple(undrained(rollout)),
        rollout.altered,
        rollout.canary.unanswered if rollout.canary else (),
        rollout.canary.query if rollout.canary else None,
    )


def _single_actions(rollout: Rollout) -> Iterable[Action]:
    resource, uncertain = rollout.resource, rollout.writes.uncertain
    begins = not resource.spec.paused
    under_way = any(
        node.in_flight or node.draining or (begins and node.phase is Phase.OUTDATED) for node in rollout.nodes
    )
    needed = bool(rollout.left) or under_way or rollout.writes.may_detach
    yield from (finalizer := [*_finalizer(resource, needed=needed)])
    # It would be for the same version as the finalizer.
    if not finalizer and target("IngressDaemonSet", resource.metadata) not in uncertain:
        yield from drains.update_status(resource, rollout.nodes, rollout.departures, rollout.now)
    for node in rollout.left:
        if target("Node", node.metadata) not in uncertain:
            yield _attach(resource, node)
    yield from (each.action for each in rollout.departures if each.action)
    yield from rollout.children.actions("DaemonSet")


def _steps(rollout: Rollout) -> Iterable[Step]:
    yield tuple(rollout.children.actions("RoleBinding"))
    updates = {*rollout.updates()}
    chosen = updates | rollout.drained(updates) if _has_finalizer(rollout.resource) else set()
    waiting = rollout.waiting()
    for node in rollout.nodes:
        if not node.uncertain:
            clearance = Clearance(node in chosen, node in waiting)
            yield tuple(node_actions(rollout.with_first_template(node), clearance, rollout.now))


def _requeue_at(rollout: Rollout) -> datetime | None:
    resource, now, failures = rollout.resource, rollout.now, rollout.failures
    waits = [each.goes_at for each in rollout.departures]
    waits += [drains.times_out(resource, requested) for requested in resource.stored.drain_requests.values()]
    waits += [failures.ends_at(node) for node in failures.nodes]
    waits.append(suspended_until(resource, now))
    if rollout.canary:
        waits += [rollout.canary.ends_at, rollout.canary.fails_at]
    if rollout.waves:
        waits.append(rollout.waves.pause_ends_at)
    waiting = any(node.phase in (Phase.OUTDATED, Phase.DETACHING) for node in rollout.nodes)
    if waiting and rollout.window:
        waits.append(rollout.closed.opens_at if rollout.closed else closes_at(rollout.window, now))
    for node in rollout.nodes:
        waits += [node.overdue_at, node.judged_at, node.settled_at, node.attach_doubt_ends_at]
        if node.is_detaching:
            waits += [node.detached_at, node.doubt_ends_at, node.connections_end_at]
    return min((each for each in waits if each is not None and each > now), default=None)


def _ending(snapshot: Snapshot) -> Iterable[Action]:
    """Attach nodes first: without the finalizer, it is unknown whose annotations they bear."""
    marked = marked_nodes(snapshot)
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


def _attach(resource: IngressDaemonSet, node: FollowedNode) -> Change:
    changes = rollout_annotations.attach(node.metadata.annotations, resource.metadata.uid)
    return change("Node", node.metadata, {"annotations": changes})
