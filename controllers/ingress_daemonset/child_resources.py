"""What an IngressDaemonSet has beside its Deployments: health checkers, and what they are allowed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from controllers.ingress_daemonset.actions import Action, Create, Delete, Kind, change
from controllers.ingress_daemonset.compare import covers, overwrite
from controllers.ingress_daemonset.desired import digest
from controllers.ingress_daemonset.drift import (
    Altered,
    Baseline,
    Drift,
    annotations_of,
    baseline_of,
    drift_of,
    rewritten,
)
from controllers.ingress_daemonset.health_check_daemonsets import access, daemon_sets
from controllers.ingress_daemonset.objects import Grant, Workload, has_selector
from settings.ingress_daemonset import HealthChecker
from webhook.ingress_daemonset.types import IngressDaemonSet


def health_checkers(
    resource: IngressDaemonSet, daemonsets: Iterable[Workload], given: HealthChecker
) -> Iterable[Action]:
    held = list(daemonsets)
    by_name = {each.metadata.name: each for each in held}
    bodies = {body["metadata"]["name"]: body for body in daemon_sets(resource, given)}
    for name, body in bodies.items():
        found = by_name.get(name)
        if found is None:
            yield Create("DaemonSet", _with_baseline(body))
        elif _is_ours(resource, found, body):
            yield from _kept(found, body)
    yield from surplus("DaemonSet", resource, set(bodies), held)


def altered(
    resource: IngressDaemonSet, daemonsets: Iterable[Workload], given: HealthChecker
) -> Iterable[Altered]:
    """Those that are left as another writer makes them again and again."""
    bodies = {body["metadata"]["name"]: body for body in daemon_sets(resource, given)}
    for held in daemonsets:
        body = bodies.get(held.metadata.name)
        if body and _is_ours(resource, held, body) and _drift(held, body) is Drift.ALTERED:
            yield Altered("DaemonSet", held.metadata.name, held.spec_digest)


def _with_baseline(body: dict[str, Any]) -> dict[str, Any]:
    annotations = annotations_of(Baseline(digest(body["spec"]), generation=1))
    return body | {"metadata": body["metadata"] | {"annotations": annotations}}


def _kept(held: Workload, body: dict[str, Any]) -> Iterable[Action]:
    """Unlike a Deployment, a DaemonSet gets no new generation for its annotations."""
    drift, old = _drift(held, body), baseline_of(held.metadata.annotations) or Baseline()
    now, wanted = held.metadata.generation, digest(body["spec"])
    if drift.calls_for_update:
        asked = rewritten(Baseline(wanted, generation=now + 1), drift, old, held.spec_digest)
        spec = overwrite(body["spec"], held.spec)
        yield change("DaemonSet", held.metadata, {"annotations": annotations_of(asked)}, spec=spec)
    elif drift is Drift.UNRECORDED:
        known = Baseline(wanted, generation=now, digest=held.spec_digest, undone=old.undone)
        yield change("DaemonSet", held.metadata, {"annotations": annotations_of(known)})


def _drift(held: Workload, body: dict[str, Any]) -> Drift:
    wanted = body["spec"]
    return drift_of(held, digest(wanted), held.spec_digest, lambda: covers(wanted, held.spec))


def accesses(
    resource: IngressDaemonSet, roles: Iterable[Grant], bindings: Iterable[Grant]
) -> Iterable[Action]:
    held: dict[Kind, list[Grant]] = {"Role": list(roles), "RoleBinding": list(bindings)}
    bodies = access(resource)
    for body in bodies:
        kind: Kind = body["kind"]
        name = body["metadata"]["name"]
        found = next((each for each in held[kind] if each.metadata.name == name), None)
        if found is None:
            yield Create(kind, body)
        elif found.is_of(resource.metadata.uid) and (parts := _differing(body, found)):
            yield change(kind, found.metadata, {}, **parts)
    names = {body["metadata"]["name"] for body in bodies}
    for kind, grants in held.items():
        yield from surplus(kind, resource, names, grants)


def surplus(
    kind: Kind, resource: IngressDaemonSet, wanted: set[str], held: Iterable[Workload | Grant]
) -> Iterable[Action]:
    """What is ours, and has no use any more."""
    for each in held:
        is_ours = each.is_of(resource.metadata.uid) and each.metadata.deletion_timestamp is None
        if is_ours and each.metadata.name not in wanted:
            yield Delete(kind, each.metadata.name, each.metadata.uid)


def strangers(resource: IngressDaemonSet, held: Iterable[Workload | Grant]) -> list[str]:
    """The names of those of *held* that stand where ours should: nothing is done to them."""
    bodies = [*daemon_sets(resource, HealthChecker()), *access(resource)]
    by_name = {body["metadata"]["name"]: body for body in bodies}
    taken = [(each, by_name[each.metadata.name]) for each in held if each.metadata.name in by_name]
    return [each.metadata.name for each, body in taken if not _is_ours(resource, each, body)]


def _is_ours(resource: IngressDaemonSet, held: Workload | Grant, body: dict[str, Any]) -> bool:
    could_be = has_selector(held, body) if isinstance(held, Workload) else True
    return held.is_of(resource.metadata.uid) and could_be


def _differing(body: dict[str, Any], held: Grant) -> dict[str, Any]:
    wanted = {"rules": held.rules, "subjects": held.subjects}
    return {
        part: body[part] for part, live in wanted.items() if part in body and not covers(body[part], live)
    }
