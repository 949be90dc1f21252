"""A node whose pods are about to be evicted is detached first, outside of any rollout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from controllers.ingress_daemonset import rollout_annotations
from controllers.ingress_daemonset.actions import Action, Change, Delete, Writes, change
from controllers.ingress_daemonset.node_rollout import LONG_AGO, Site, time_of
from controllers.ingress_daemonset.objects import Workload
from webhook.ingress_daemonset import DRAIN_REQUESTS, EVICTABLE_NODES
from webhook.ingress_daemonset.types import IngressDaemonSet

LINGER = timedelta(seconds=60)
"""For so long after the last refusal a node stays detached, so that the eviction can be tried again."""


def hand_over(
    resource: IngressDaemonSet, sites: Sequence[Site], departing: Iterable[Departure], now: datetime
) -> Iterator[Change]:
    """What evictions go by, in the status, for this version of it: the webhook writes requests there meanwhile."""
    by_node, leaving = {site.node.name: site for site in sites}, {each.node for each in departing}
    requests, evictable = resource.drain_requests, resource.evictable_nodes
    ended = {node for node in requests if has_ended(resource, node, by_node.get(node), now)}
    wanted = {site.node.name for site in sites if may_evict(site, now)}
    if resource.spec.detaches_for_evictions:
        # Nothing of ours is there that could be detached.
        wanted |= requests.keys() - by_node.keys() - leaving - ended
    said = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    status = {
        DRAIN_REQUESTS: dict.fromkeys(sorted(ended)),
        EVICTABLE_NODES: dict.fromkeys(sorted(evictable.keys() - wanted))
        | dict.fromkeys(sorted(wanted - evictable.keys()), said),
    }
    if parts := {name: part for name, part in status.items() if part}:
        whole = change("IngressDaemonSet", resource.metadata, {}, status=parts)
        yield replace(whole, subresource="status")


def may_evict(site: Site, now: datetime) -> bool:
    """Whether evictions from its node may pass; once they may, they do while it stays detached."""
    if site.drains:
        stays = site.evictable and site.in_flight
        return not is_over(site, now) and (stays or (not site.uncertain and site.is_released(now)))
    # A Deployment that is not ours, or on its way out, is not detached by us.
    held = site.deployment is not None and (site.absent or site.foreign)
    asked = bool(site.drain_requested) and site.resource.spec.detaches_for_evictions
    return held and asked and not is_over(site, now)


def is_over(site: Site, now: datetime) -> bool:
    """Whether a request is, after its time: a node that is cordoned, or about to be deleted, waits for its end."""
    ends_at = ends(site)
    return ends_at is not None and ends_at <= now


def ends(site: Site) -> datetime | None:
    """When the request ends by time alone."""
    if site.node.cordoned or site.node.to_be_deleted:
        return None
    return times_out(site.resource, site.drain_requested)


def times_out(resource: IngressDaemonSet, requested: str) -> datetime:
    """When a request ends at the latest of a node that is not cordoned; one that cannot be read has."""
    asked = time_of(requested)
    return asked + timedelta(seconds=resource.spec.drain_timeout_seconds) + LINGER if asked else LONG_AGO


def has_ended(resource: IngressDaemonSet, node: str, site: Site | None, now: datetime) -> bool:
    """Whether the request for *node* has; one for a node without a *site* does by time."""
    if not resource.spec.detaches_for_evictions:
        return True
    return is_over(site, now) if site else times_out(resource, resource.drain_requests[node]) <= now


@dataclass(frozen=True)
class Departure:
    """A Deployment whose node has left: what is done now, or when it goes."""

    held: Workload
    action: Action | None = None
    goes_at: datetime | None = None

    @property
    def node(self) -> str:
        return str(self.held.spec.get("template", {}).get("spec", {}).get("nodeName", ""))


def departures(
    resource: IngressDaemonSet, wanted: set[str], held: Iterable[Workload], writes: Writes, now: datetime
) -> list[Departure]:
    """Of the Deployments of ours that no node needs any more."""
    uid = resource.metadata.uid
    return [
        _departure(resource, each, writes, now)
        for each in held
        if each.is_of(uid) and each.metadata.deletion_timestamp is None and each.metadata.name not in wanted
    ]


def _departure(resource: IngressDaemonSet, held: Workload, writes: Writes, now: datetime) -> Departure:
    """Its health checks fail for the whole grace before its pods go."""
    gone = Departure(held, Delete("Deployment", held.metadata.name, held.metadata.uid))
    annotation = resource.spec.update_strategy.rolling_update.deployment_annotation
    serves = held.status.available_replicas > 0 and resource.spec.health_check_node_ports
    if annotation is None or not annotation.grace_period_seconds or not serves:
        return gone
    if ("Deployment", held.metadata.name) in writes.uncertain:
        return Departure(held)
    mark = rollout_annotations.on_deployment(held.metadata.annotations)
    if mark is None or mark.key not in held.metadata.annotations:
        wanted = rollout_annotations.schedule(held.metadata.annotations, annotation, now)
        return Departure(held, change("Deployment", held.metadata, {"annotations": wanted}))
    goes_at = mark.at + timedelta(seconds=annotation.grace_period_seconds)
    return gone if goes_at <= now else Departure(held, goes_at=goes_at)
