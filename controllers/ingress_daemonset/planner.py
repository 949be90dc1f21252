"""From a snapshot to actions: never detach more nodes than allowed, nor update one before it is detached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from api.ingress_daemonset import DRAIN_REQUESTS, EVICTABLE_NODES, FINALIZER
from api.ingress_daemonset.status import Phase, Status
from api.ingress_daemonset.types import suspended_until
from controllers.ingress_daemonset.children import Action, change, target
from controllers.ingress_daemonset.drift import Altered
from controllers.ingress_daemonset.nodes import (
    LINGER_SECONDS,
    Clearance,
    NodeRollout,
    drain_times_out_at,
    node_actions,
)
from controllers.ingress_daemonset.pacing import Query, suspended
from controllers.ingress_daemonset.rollout import Rollout, Snapshot
from controllers.ingress_daemonset.status import Unconfirmed, Undrained, status_of, unconfirmed, undrained
from kube.types import after, rfc3339
from settings.windows import closes_at

Step = tuple[Action, ...]


@dataclass(frozen=True)
class Plan:
    """The actions of a step run in order, and none after one that failed.

    *requeue_at* is when time alone changes something; *status* is complete.
    """

    steps: tuple[Step, ...] = ()
    requeue_at: datetime | None = None
    status: Status | None = None
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


def plan(snapshot: Snapshot, before: Sequence[NodeRollout] = ()) -> Plan:
    """*before* has the rollouts of the last plan."""
    resource = snapshot.resource
    if resource.metadata.deletion_timestamp is not None:
        # Attach nodes first: without the finalizer, it is unknown whose annotations they bear.
        actions = list[Action](snapshot.attachments().values())
        # The API server allows no new finalizer on a terminating object.
        if FINALIZER in resource.metadata.finalizers and not actions and not snapshot.writes.may_detach:
            others = [each for each in resource.metadata.finalizers if each != FINALIZER]
            actions.append(change("IngressDaemonSet", resource.metadata, {"finalizers": others}))
        return Plan(tuple((action,) for action in actions))
    if suspended_until(resource, snapshot.now):
        snapshot = replace(snapshot, resource=suspended(resource))
    rollout = Rollout(snapshot, before)
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
    # Only during a rollout: at rest, a deletion needs no Drawbridge.
    needed = bool(rollout.left) or under_way or rollout.writes.may_detach
    has_it = FINALIZER in resource.metadata.finalizers
    # In a suspension none is added: what took it away may be gone already, as Drawbridge soon is.
    if needed != has_it and (has_it or not suspended_until(resource, rollout.now)):
        others = [each for each in resource.metadata.finalizers if each != FINALIZER]
        finalizers = [*others, FINALIZER] if needed else others
        yield change("IngressDaemonSet", resource.metadata, {"finalizers": finalizers})
    # It would be for the same version as the finalizer.
    elif target("IngressDaemonSet", resource.metadata) not in uncertain:
        yield from _drains(rollout)
    # Until its Deployment is deleted, the load balancer would send traffic to pods that are about to end.
    leaving = {each.held.node for each in rollout.departures}
    yield from (
        each for name, each in rollout.left.items() if name not in leaving and each.target not in uncertain
    )
    yield from (each.action for each in rollout.departures if each.action)
    yield from rollout.checkers.actions


def _drains(rollout: Rollout) -> Iterable[Action]:
    """Say in the status from which nodes evictions may pass, and clear requests that have ended.

    Only for this version of it: the webhook writes requests there meanwhile.
    """
    resource, now, detaches = rollout.resource, rollout.now, rollout.resource.spec.detaches_for_evictions
    requests, evictable = resource.stored.drain_requests, resource.stored.evictable_nodes
    by_node = {node.node.name: node for node in rollout.nodes}

    def times_out_at(name: str) -> datetime:
        return drain_times_out_at(resource, name, requests[name], rollout.writes)

    def has_ended(name: str) -> bool:
        if name in by_node:
            return by_node[name].drain_is_over(now)
        return after(times_out_at(name), LINGER_SECONDS) <= now

    ended = {name for name in requests if not detaches or has_ended(name)}
    wanted = {name for name, node in by_node.items() if node.may_evict(now)}
    if detaches:
        # The others have nothing of ours that could be detached.
        detachable = by_node.keys() | {each.held.node for each in rollout.departures}
        wanted |= {
            name for name in requests.keys() - ended if name not in detachable or times_out_at(name) <= now
        }
    added = dict.fromkeys(sorted(wanted - evictable.keys()), rfc3339(now))
    status = {
        DRAIN_REQUESTS: dict.fromkeys(sorted(ended)),
        EVICTABLE_NODES: dict.fromkeys(sorted(evictable.keys() - wanted)) | added,
    }
    if parts := {name: part for name, part in status.items() if part}:
        yield change("IngressDaemonSet", resource.metadata, {}, "status", status=parts)


def _steps(rollout: Rollout) -> Iterable[Step]:
    yield tuple(rollout.recorded)
    chosen = set[NodeRollout]()
    if FINALIZER in rollout.resource.metadata.finalizers:
        updates = {*rollout.updates()}
        chosen = updates | rollout.drained(updates)
    waiting = rollout.waiting()
    for node in rollout.nodes:
        if not node.uncertain:
            clearance = Clearance(node in chosen or node.phase is Phase.DETACHING, node in waiting)
            yield tuple(node_actions(rollout.with_first_template(node), clearance, rollout.now))


def _requeue_at(rollout: Rollout) -> datetime | None:
    resource, now, failures = rollout.resource, rollout.now, rollout.failures
    waits = [each.goes_at for each in rollout.departures]
    for name, requested in resource.stored.drain_requests.items():
        times_out_at = drain_times_out_at(resource, name, requested, rollout.writes)
        waits += [times_out_at, after(times_out_at, LINGER_SECONDS)]
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
        waits += [node.stuck_at, node.settled_at, node.attach_doubt_ends_at]
        if node.is_detaching:
            waits += [node.detached_at, node.doubt_ends_at, node.connections_end_at]
    return min((each for each in waits if each is not None and each > now), default=None)
