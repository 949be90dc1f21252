"""What is to be written for one node and its Deployment: they are detached first, updated then, and attached last."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from controllers.ingress_daemonset import drains, marks
from controllers.ingress_daemonset.actions import Action, Create, change
from controllers.ingress_daemonset.compare import covers, overwrite
from controllers.ingress_daemonset.desired import settings_of, shares_ports
from controllers.ingress_daemonset.objects import Workload
from controllers.ingress_daemonset.site import Phase, Site
from webhook.ingress_daemonset import TEMPLATE_HASH
from webhook.ingress_daemonset.model import IngressDaemonSet


def step(site: Site, chosen: bool, now: datetime) -> Iterable[Action]:
    if site.phase is Phase.FOREIGN:
        return
    if site.deployment is None:
        yield Create("Deployment", site.body)
        return
    if site.absent:
        return
    annotations, template = _deployment_changes(site, chosen, now)
    # As many pods as the new template has room for could refuse each other's ports with the old one.
    together = site.outdated and shares_ports(site.resource)
    spec = {} if together and not template else _settings(site.resource, site.deployment)
    held, labels = site.deployment.metadata, _labels(site)
    if annotations or spec or template or labels:
        yield change("Deployment", held, labels | _annotated(annotations), spec=spec | template)
    if on_node := _node_changes(site, chosen, now):
        yield change("Node", site.node.metadata, {"annotations": on_node})


def _settings(resource: IngressDaemonSet, held: Workload) -> dict[str, Any]:
    """Only those that are not as they should be."""
    wanted = settings_of(resource)
    differing = [name for name, value in wanted.items() if not covers(value, held.spec.get(name))]
    return {name: overwrite(wanted[name], held.spec.get(name)) for name in differing}


def _labels(site: Site) -> dict[str, Any]:
    """Those that somebody took off."""
    wanted = site.body["metadata"]["labels"]
    held = site.deployment.metadata.labels if site.deployment else {}
    return {} if covers(wanted, held) else {"labels": wanted}


def _annotated(annotations: marks.Changes) -> dict[str, Any]:
    return {"annotations": annotations} if annotations else {}


def _deployment_changes(site: Site, chosen: bool, now: datetime) -> tuple[marks.Changes, dict[str, Any]]:
    """Of its annotations, and of its template."""
    if _is_over(site):
        return {**drains.forget(site.annotations), **marks.unschedule(site.annotations)}, {}
    wanted = site.rolling.deployment_annotation
    if _is_detached(site, chosen) and site.unscheduled:
        return marks.schedule(site.annotations, wanted, now), {}
    if not _may_update(site, chosen, now) or site.deployment is None:
        return {**_restored(site), **drains.progress(site, now)}, {}
    hashed = {TEMPLATE_HASH: site.body["metadata"]["annotations"][TEMPLATE_HASH]}
    mark = {} if site.scheduled else marks.schedule(site.annotations, None, now)
    template = overwrite(site.body["spec"]["template"], site.deployment.spec.get("template"))
    return {**mark, **hashed}, {"template": template}


def _may_update(site: Site, chosen: bool, now: datetime) -> bool:
    begun = chosen or site.phase is Phase.DETACHING
    return begun and site.outdated and not site.resource.spec.paused and site.is_released(now)


def _is_detached(site: Site, chosen: bool) -> bool:
    """Whether it is to be: a drain waits for no rollout, also for none that is paused."""
    begun = chosen or site.phase is Phase.DETACHING or (site.drains and site.in_flight)
    return begun and (site.drains or not site.resource.spec.paused)


def _restored(site: Site) -> marks.Changes:
    """What somebody took off a Deployment that is still being updated."""
    wanted, mark = site.rolling.deployment_annotation, site.scheduled
    lost = wanted and mark and wanted.key == mark.key and wanted.key not in site.annotations
    return {wanted.key: wanted.value} if wanted and lost else {}


def _node_changes(site: Site, chosen: bool, now: datetime) -> marks.Changes:
    held, wanted = site.node.metadata.annotations, site.rolling.node_annotation
    if _is_over(site):
        return marks.attach(held, site.uid)
    lost = site.phase is Phase.UPDATING and site.detached is not None
    if wanted is None or not site.attached or not (_is_detached(site, chosen) or lost):
        return {}
    timestamp = site.rolling.timestamp
    return marks.detach(held, site.uid, wanted, timestamp.key if timestamp else "", now)


def _is_over(site: Site) -> bool:
    """A paused rollout gives back the nodes whose pods it has not touched."""
    if site.drains:
        return False
    untouched = site.phase is Phase.DETACHING and site.resource.spec.paused
    done = site.deployment is not None and site.deployment.rolled_out
    return site.phase is Phase.ATTACHING or (untouched and done)
