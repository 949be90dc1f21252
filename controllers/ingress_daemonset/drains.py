"""Detach a node before its pods are evicted, outside of any rollout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from api.ingress_daemonset import DRAIN_REQUESTS, EVICTABLE_NODES
from api.ingress_daemonset.types import IngressDaemonSet, time_of
from controllers.ingress_daemonset.actions import LONG_AGO, Change, change
from controllers.ingress_daemonset.departures import Departure
from controllers.ingress_daemonset.node_rollout import NodeRollout

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
    requests, evictable = resource.drain_requests, resource.evictable_nodes
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
    return is_over(rollout, now) if rollout else times_out(resource, resource.drain_requests[node]) <= now
