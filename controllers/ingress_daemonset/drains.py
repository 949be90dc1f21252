"""Nodes that are drained, and Deployments whose node has left.

Pods are evicted, or go, when the load balancer sends the node nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from api.ingress_daemonset import DRAIN_REQUESTS, EVICTABLE_NODES
from api.ingress_daemonset.types import OFF, PREFERRED, IngressDaemonSet, RollingUpdate, time_of
from controllers.ingress_daemonset import rollout_annotations
from controllers.ingress_daemonset.children import LONG_AGO, Action, Change, Workload, change, delete, target
from controllers.ingress_daemonset.detachment import after
from controllers.ingress_daemonset.load_balancers import NodeBackends, by_load_balancer
from controllers.ingress_daemonset.nodes import NodeRollout
from controllers.ingress_daemonset.snapshot import Snapshot

RETURN = 10
"""Seconds for which a node that no longer matches keeps its pods: its label may come back, as when it is replaced."""


@dataclass(frozen=True)
class Departure:
    """A Deployment whose node has left: the action for it now, or when it is deleted.

    It *counts* against the budget, since its node may come back. *doubt* is why a load balancer may still send traffic
    to the node, though the graces were over at *safe_at*.
    """

    held: Workload
    action: Action | None = None
    goes_at: datetime | None = None
    counts: bool = False
    doubt: str | None = None
    safe_at: datetime | None = None
    patience: float | None = None
    """Seconds after which to report the doubt."""

    @property
    def node(self) -> str:
        return self.held.node


class Wait(NamedTuple):
    """*grace* is in seconds from the mark; *backends* are what is known of the node at load balancers."""

    grace: int
    backends: list[NodeBackends]

    @property
    def needs_mark(self) -> bool:
        return bool(self.grace or self.backends)


def departures(snapshot: Snapshot, left: Iterable[Workload]) -> list[Departure]:
    """Of those of *left* that are ours."""
    uid, nodes = snapshot.resource.metadata.uid, {each.name for each in snapshot.nodes}
    ours = (each for each in left if each.is_of(uid) and not each.is_terminating)
    return [_departure(snapshot, each, exists=each.node in nodes) for each in ours]


def _departure(snapshot: Snapshot, held: Workload, *, exists: bool) -> Departure:
    found, now = Departure(held, counts=exists), snapshot.now
    if target("Deployment", held.metadata) in snapshot.writes.uncertain:
        return found
    wait, annotations = _wait(snapshot, held, exists=exists), held.metadata.annotations
    mark = rollout_annotations.on_deployment(annotations)
    if wait.needs_mark and (mark is None or not mark.leaving or (mark.key and mark.key not in annotations)):
        wanted = _rolling(snapshot.resource).deployment_annotation
        changes = rollout_annotations.schedule(annotations, wanted, now, leaving=True)
        return replace(found, action=change("Deployment", held.metadata, {"annotations": changes}))
    if mark and wait.needs_mark:
        began = snapshot.writes.began(mark.at, target("Deployment", held.metadata))
        found = _detached(found, began, wait, _rolling(snapshot.resource), now)
    if found.doubt or (found.goes_at and found.goes_at > now):
        return found
    return replace(found, action=delete("Deployment", held.metadata), goes_at=None)


def _detached(
    found: Departure, began: datetime, wait: Wait, rolling: RollingUpdate, now: datetime
) -> Departure:
    """*found*, and when it is deleted, or why that is not known."""
    grace = rolling.weights.grace_period_seconds if rolling.weights else 0
    off = (after(each.detached_since, grace) for each in wait.backends if each.detached_since)
    safe_at = max([after(began, wait.grace), *off])
    if safe_at > now:
        return replace(found, goes_at=safe_at)
    doubt = next(filter(None, (each.detach_doubt for each in wait.backends)), None)
    if not doubt:
        return found
    ends_at = after(safe_at, rolling.confirm_timeout_seconds) if rolling.confirm == PREFERRED else None
    if ends_at and ends_at <= now:
        return found
    patience = rolling.confirm_timeout_seconds
    return replace(found, goes_at=ends_at, doubt=doubt, safe_at=safe_at, patience=patience)


def _wait(snapshot: Snapshot, held: Workload, *, exists: bool) -> Wait:
    """Nothing is waited for where no pod gets traffic, or by which nothing could be detached."""
    resource, rolling = snapshot.resource, _rolling(snapshot.resource)
    annotation, weights, serves = (
        rolling.deployment_annotation,
        rolling.weights,
        held.status.available_replicas > 0,
    )
    grace = RETURN if exists else 0
    if serves and annotation and (resource.spec.health_check_node_ports or weights):
        grace = max(grace, *(each.grace_period_seconds for each in (annotation, weights) if each))
    if weights is None or rolling.confirm == OFF or not (serves or exists):
        return Wait(grace, [])
    known = snapshot.backends.get(held.node, ())
    return Wait(grace, by_load_balancer(weights.load_balancers, known))


def _rolling(resource: IngressDaemonSet) -> RollingUpdate:
    return resource.spec.update_strategy.rolling_update


LINGER = timedelta(seconds=60)
"""A node stays detached for so long after the last denied eviction, so that it can be retried."""
AHEAD = timedelta(seconds=10)
"""By how much the clock of the webhook server that wrote a request may be ahead of this one."""


def update_status(
    resource: IngressDaemonSet, rollouts: Sequence[NodeRollout], leaving: Iterable[Departure], now: datetime
) -> Iterator[Change]:
    """Say in the status which nodes may be drained, clear requests that have ended, and correct those of the future.

    Only for this version of it: the webhook writes requests there meanwhile.
    """
    by_node, left = {each.node.name: each for each in rollouts}, {each.node for each in leaving}
    requests, evictable = resource.stored.drain_requests, resource.stored.evictable_nodes
    ended = {node for node in requests if has_ended(resource, node, by_node.get(node), now)}
    wanted = {each.node.name for each in rollouts if may_evict(each, now)}
    if resource.spec.detaches_for_evictions:
        # Those nodes have nothing of ours that could be detached.
        wanted |= requests.keys() - by_node.keys() - left - ended
    moment = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    added = dict.fromkeys(sorted(wanted - evictable.keys()), moment)
    early = [node for node, at in requests.items() if (time_of(at) or LONG_AGO) > now + AHEAD]
    status = {
        DRAIN_REQUESTS: dict.fromkeys(sorted(early), moment) | dict.fromkeys(sorted(ended)),
        EVICTABLE_NODES: dict.fromkeys(sorted(evictable.keys() - wanted)) | added,
    }
    if parts := {name: part for name, part in status.items() if part}:
        yield change("IngressDaemonSet", resource.metadata, {}, "status", status=parts)


def may_evict(rollout: NodeRollout, now: datetime) -> bool:
    """Whether evictions from its node may pass; once they may, they do while it stays detached."""
    if rollout.draining:
        stays = rollout.drain.evictable and rollout.in_flight
        released = not rollout.uncertain and rollout.is_released(now)
        return not is_over(rollout, now) and (stays or released)
    # An unmanaged or a terminating Deployment is not detached by us.
    held = rollout.deployment is not None and (rollout.absent or rollout.unmanaged)
    asked = bool(rollout.drain.requested) and rollout.resource.spec.detaches_for_evictions
    return held and asked and not is_over(rollout, now)


def is_over(rollout: NodeRollout, now: datetime) -> bool:
    """Whether the request has timed out; on a node that is cordoned or about to be deleted it does not."""
    if rollout.node.cordoned or rollout.node.to_be_deleted:
        return False
    return times_out(rollout.resource, rollout.drain.requested) <= now


def times_out(resource: IngressDaemonSet, requested: str) -> datetime:
    """When a request ends on a node that is not cordoned; an unreadable one has ended."""
    asked = time_of(requested)
    return asked + timedelta(seconds=resource.spec.drain_timeout_seconds) + LINGER if asked else LONG_AGO


def has_ended(resource: IngressDaemonSet, node: str, rollout: NodeRollout | None, now: datetime) -> bool:
    """Whether the request for *node* has; without a *rollout* it ends by time."""
    if not resource.spec.detaches_for_evictions:
        return True
    return (
        is_over(rollout, now) if rollout else times_out(resource, resource.stored.drain_requests[node]) <= now
    )
