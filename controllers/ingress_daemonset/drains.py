"""Detach a node before its pods are evicted, outside of any rollout."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from controllers.ingress_daemonset import rollout_annotations
from controllers.ingress_daemonset.actions import Action, Change, Writes, change, delete, target
from controllers.ingress_daemonset.detachment import LONG_AGO
from controllers.ingress_daemonset.node_rollout import NodeRollout
from controllers.ingress_daemonset.types import Workload
from webhook.ingress_daemonset import DRAIN_REQUESTS, EVICTABLE_NODES
from webhook.ingress_daemonset.detaching import Annotation
from webhook.ingress_daemonset.types import IngressDaemonSet, time_of

RETURN = 10
"""Seconds for which a node that no longer matches keeps its pods: its label may come back, as when it is replaced."""
LINGER = timedelta(seconds=60)
"""A node stays detached for so long after the last denied eviction, so that it can be retried."""


@dataclass(frozen=True)
class Departure:
    """A Deployment whose node has left: the action for it now, or when it is deleted.

    It *counts* against the budget, since its node may come back.
    """

    held: Workload
    action: Action | None = None
    goes_at: datetime | None = None
    counts: bool = False

    @property
    def node(self) -> str:
        return node_of(self.held)


def update_status(
    resource: IngressDaemonSet, rollouts: Sequence[NodeRollout], leaving: Iterable[Departure], now: datetime
) -> Iterator[Change]:
    """Say in the status which nodes may be drained, and clear requests that have ended.

    Only for this version of it: the webhook writes requests there meanwhile.
    """
    by_node, left = {each.node.name: each for each in rollouts}, {each.node for each in leaving}
    requests, evictable = resource.drain_requests, resource.evictable_nodes
    ended = {node for node in requests if has_ended(resource, node, by_node.get(node), now)}
    wanted = {each.node.name for each in rollouts if may_evict(each, now)}
    if resource.spec.detaches_for_evictions:
        # Those nodes have nothing of ours that could be detached.
        wanted |= requests.keys() - by_node.keys() - left - ended
    added = dict.fromkeys(sorted(wanted - evictable.keys()), f"{now:%Y-%m-%dT%H:%M:%SZ}")
    status = {
        DRAIN_REQUESTS: dict.fromkeys(sorted(ended)),
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
    return is_over(rollout, now) if rollout else times_out(resource, resource.drain_requests[node]) <= now


def departures(
    resource: IngressDaemonSet, left: Iterable[Workload], nodes: Container[str], writes: Writes, now: datetime
) -> list[Departure]:
    """Of those of *left* that are ours; *nodes* are the names of all that exist."""
    ours = (each for each in left if each.is_of(resource.metadata.uid) and not each.is_terminating)
    return [_departure(resource, each, nodes, writes, now) for each in ours]


def _departure(
    resource: IngressDaemonSet, held: Workload, nodes: Container[str], writes: Writes, now: datetime
) -> Departure:
    """Its health checks fail for the whole grace before its pods are deleted."""
    found = Departure(held, counts=node_of(held) in nodes)
    grace = max(_grace(resource, held), RETURN if found.counts else 0)
    if target("Deployment", held.metadata) in writes.uncertain:
        return found
    annotations, annotation = held.metadata.annotations, _annotation(resource)
    mark = rollout_annotations.on_deployment(annotations)
    if grace and (mark is None or not mark.leaving or (mark.key and mark.key not in annotations)):
        wanted = rollout_annotations.schedule(annotations, annotation, now, leaving=True)
        return replace(found, action=change("Deployment", held.metadata, {"annotations": wanted}))
    goes_at = mark.at + timedelta(seconds=grace) if mark and grace else now
    if goes_at > now:
        return replace(found, goes_at=goes_at)
    return replace(found, action=delete("Deployment", held.metadata))


def node_of(held: Workload) -> str:
    return str(((held.spec.get("template") or {}).get("spec") or {}).get("nodeName", ""))


def _annotation(resource: IngressDaemonSet) -> Annotation | None:
    return resource.spec.update_strategy.rolling_update.deployment_annotation


def _grace(resource: IngressDaemonSet, held: Workload) -> int:
    """Zero for pods that get no traffic, and where there is nothing by which they could be detached."""
    weights = resource.spec.update_strategy.rolling_update.weights
    has_traffic = held.status.available_replicas > 0
    if _annotation(resource) is None or not (
        has_traffic and (resource.spec.health_check_node_ports or weights)
    ):
        return 0
    return max(each.grace_period_seconds for each in (_annotation(resource), weights) if each)
