"""What an IngressDaemonSet has beside its Deployments: health checkers, and what they are allowed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from controllers.ingress_daemonset.actions import Action, Create, Delete, Kind, change
from controllers.ingress_daemonset.checkers import access, daemon_sets
from controllers.ingress_daemonset.compare import covers, overwrite
from controllers.ingress_daemonset.objects import Grant, Workload, has_selector
from settings.ingress_daemonset import HealthChecker
from webhook.ingress_daemonset.model import IngressDaemonSet


def health_checkers(
    resource: IngressDaemonSet, daemonsets: Iterable[Workload], given: HealthChecker
) -> Iterable[Action]:
    held = list(daemonsets)
    by_name = {each.metadata.name: each for each in held}
    bodies = {body["metadata"]["name"]: body for body in daemon_sets(resource, given)}
    for name, body in bodies.items():
        found = by_name.get(name)
        if found is None:
            yield Create("DaemonSet", body)
        elif _is_ours(resource, found, body) and not covers(body["spec"], found.spec):
            template = overwrite(body["spec"]["template"], found.spec.get("template"))
            yield change("DaemonSet", found.metadata, {}, spec={"template": template})
    yield from surplus("DaemonSet", resource, set(bodies), held)


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
