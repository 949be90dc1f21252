"""What is to be written for one node and its Deployment: they are detached first, updated then, and attached last."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from controllers.ingress_daemonset import rollout_annotations
from controllers.ingress_daemonset.actions import Action, Create, change
from controllers.ingress_daemonset.compare import covers, overwrite
from controllers.ingress_daemonset.desired import digest, settings_of, shared_digest, shares_ports
from controllers.ingress_daemonset.drift import Baseline, Drift, annotations_of, rewritten
from controllers.ingress_daemonset.node_rollout import Phase, Site
from controllers.ingress_daemonset.objects import Workload
from webhook.ingress_daemonset.types import IngressDaemonSet


def step(site: Site, chosen: bool, now: datetime) -> Iterable[Action]:
    if site.phase is Phase.FOREIGN:
        return
    if site.deployment is None:
        yield Create("Deployment", _new(site))
        return
    if site.absent:
        return
    annotations, template = _deployment_changes(site, chosen, now)
    # As many pods as the new template has room for could refuse each other's ports with the old one.
    apart = site.outdated and shares_ports(site.resource) and not template
    spec = ({} if apart else _settings(site, site.deployment)) | template
    if annotations or spec or site.drift is Drift.UNRECORDED:
        annotations = annotations | _recorded(site, site.deployment, apart=apart, template=bool(template))
    held, labels = site.deployment.metadata, _labels(site)
    if annotations or spec or labels:
        yield change("Deployment", held, labels | _annotated(annotations), spec=spec)
    if on_node := _node_changes(site, chosen, now):
        yield change("Node", site.node.metadata, {"annotations": on_node})


def _new(site: Site) -> dict[str, Any]:
    """The Deployment, with its baseline."""
    metadata = site.body["metadata"]
    return site.body | {"metadata": metadata | {"annotations": annotations_of(_asked(site, generation=1))}}


def _recorded(site: Site, held: Workload, *, apart: bool, template: bool) -> rollout_annotations.Changes:
    """The baseline as it is after a write: each one makes a generation. Settings *apart* are not written.

    While the template is not as we applied it, the baseline stays what it is; one without its digest gets that before
    the generation moves on, for the template may be wanted again.
    """
    old, asked = site.baseline or Baseline(), _asked(site, held.metadata.generation + 1)
    if apart:
        asked = replace(asked, settings=old.settings)
    if template:
        return annotations_of(rewritten(asked, site.drift, old, held.template_digest))
    if site.drift.is_accepted:
        return annotations_of(replace(asked, digest=held.template_digest, undone=old.undone))
    if old.template and not old.digest and old.is_answered_by(held):
        return annotations_of(replace(old, digest=held.template_digest))
    return {}


def _asked(site: Site, generation: int) -> Baseline:
    shared = shared_digest(site.body["spec"]["template"])
    return Baseline(site.wanted_hash, shared, _settings_hash(site.resource), generation)


def _settings(site: Site, held: Workload) -> dict[str, Any]:
    """Only those that are not as they should be; not those that the API server has answered just so."""
    wanted = settings_of(site.resource)
    differing = [name for name, value in wanted.items() if not covers(value, held.spec.get(name))]
    if differing and _is_answer(site, held):
        return {}
    return {name: overwrite(wanted[name], held.spec.get(name)) for name in differing}


def _is_answer(site: Site, held: Workload) -> bool:
    """Whether the settings are what a policy made of ours."""
    baseline = site.baseline
    same = baseline is not None and baseline.settings == _settings_hash(site.resource)
    return same and baseline is not None and baseline.is_answered_by(held)


def _settings_hash(resource: IngressDaemonSet) -> str:
    return digest(settings_of(resource))


def _labels(site: Site) -> dict[str, Any]:
    """Those that somebody took off."""
    wanted = site.body["metadata"]["labels"]
    held = site.deployment.metadata.labels if site.deployment else {}
    return {} if covers(wanted, held) else {"labels": wanted}


def _annotated(annotations: rollout_annotations.Changes) -> dict[str, Any]:
    return {"annotations": annotations} if annotations else {}


def _deployment_changes(
    site: Site, chosen: bool, now: datetime
) -> tuple[rollout_annotations.Changes, dict[str, Any]]:
    """Of its annotations, and of its template."""
    if _is_over(site):
        return rollout_annotations.unschedule(site.annotations), {}
    wanted = site.rolling.deployment_annotation
    if _is_detached(site, chosen) and site.unscheduled:
        return rollout_annotations.schedule(site.annotations, wanted, now), {}
    if not _may_update(site, chosen, now) or site.deployment is None:
        return _restored(site), {}
    mark = {} if site.scheduled else rollout_annotations.schedule(site.annotations, None, now)
    template = overwrite(site.body["spec"]["template"], site.deployment.spec.get("template"))
    return mark, {"template": template}


def _may_update(site: Site, chosen: bool, now: datetime) -> bool:
    begun = chosen or site.phase is Phase.DETACHING
    return begun and site.outdated and not site.resource.spec.paused and site.is_released(now)


def _is_detached(site: Site, chosen: bool) -> bool:
    """Whether it is to be: a drain waits for no rollout, also for none that is paused."""
    begun = chosen or site.phase is Phase.DETACHING or (site.drains and site.in_flight)
    return begun and (site.drains or not site.resource.spec.paused)


def _restored(site: Site) -> rollout_annotations.Changes:
    """What somebody took off a Deployment that is still being updated."""
    wanted, mark = site.rolling.deployment_annotation, site.scheduled
    lost = wanted and mark and wanted.key == mark.key and wanted.key not in site.annotations
    return {wanted.key: wanted.value} if wanted and lost else {}


def _node_changes(site: Site, chosen: bool, now: datetime) -> rollout_annotations.Changes:
    held, wanted = site.node.metadata.annotations, site.rolling.node_annotation
    if _is_over(site):
        return rollout_annotations.attach(held, site.uid)
    lost = site.phase is Phase.UPDATING and site.detached is not None
    if wanted is None or not site.attached or not (_is_detached(site, chosen) or lost):
        return {}
    timestamp = site.rolling.timestamp
    return rollout_annotations.detach(held, site.uid, wanted, timestamp.key if timestamp else "", now)


def _is_over(site: Site) -> bool:
    """A paused rollout gives back the nodes whose pods it has not touched."""
    if site.drains or site.may_be_evictable:
        return False
    untouched = site.phase is Phase.DETACHING and site.resource.spec.paused
    done = site.deployment is not None and site.deployment.rolled_out
    return site.phase is Phase.ATTACHING or (untouched and done)
