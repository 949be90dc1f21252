"""A node whose pods are about to be evicted is detached first, outside of any rollout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from controllers.ingress_daemonset import marks
from controllers.ingress_daemonset.actions import Action, Delete, Writes, change
from controllers.ingress_daemonset.objects import Workload
from controllers.ingress_daemonset.site import LONG_AGO, Site, time_of
from webhook.ingress_daemonset import DRAIN_REQUESTED, EVICTABLE
from webhook.ingress_daemonset.model import IngressDaemonSet

LINGER = timedelta(seconds=60)
"""For so long after the last refusal a node stays detached, so that the eviction can be tried again."""


def progress(site: Site, now: datetime) -> marks.Changes:
    """What an eviction goes by, to the Deployment of a node that is drained."""
    if not site.drains or is_over(site, now):
        return forget(site.annotations)
    if EVICTABLE not in site.annotations and site.is_released(now):
        return {EVICTABLE: now.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return {}


def forget(annotations: Mapping[str, str]) -> marks.Changes:
    return dict.fromkeys(key for key in (DRAIN_REQUESTED, EVICTABLE) if key in annotations)


def is_over(site: Site, now: datetime) -> bool:
    """Whether a request is, after its time: a node that is cordoned, or about to be deleted, waits for its end."""
    ends_at = ends(site)
    return ends_at is not None and ends_at <= now


def ends(site: Site) -> datetime | None:
    """When the request ends by time alone."""
    if site.node.cordoned or site.node.to_be_deleted:
        return None
    asked = time_of(site.annotations.get(DRAIN_REQUESTED, ""))
    held = timedelta(seconds=site.resource.spec.drain_timeout_seconds)
    return asked + held + LINGER if asked else LONG_AGO


@dataclass(frozen=True)
class Departure:
    """A Deployment whose node has left: what is done now, or when it goes."""

    held: Workload
    action: Action | None = None
    goes_at: datetime | None = None


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
    mark = marks.on_deployment(held.metadata.annotations)
    if mark is None or mark.key not in held.metadata.annotations:
        wanted = marks.schedule(held.metadata.annotations, annotation, now)
        return Departure(held, change("Deployment", held.metadata, {"annotations": wanted}))
    goes_at = mark.at + timedelta(seconds=annotation.grace_period_seconds)
    return gone if goes_at <= now else Departure(held, goes_at=goes_at)
