"""`drawbridge elasticity list|return`: of pods that it has nothing to do with not even the specs are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from api.elasticity import PLACEMENT
from cli.errors import WRONG
from cli.inventory import Inventory
from cli.objects import Pod, PodSpec
from cli.output import timed
from cli.placements import Placement, Placements, listed, parts_of, to_return
from cli.session import Command, Commands, Session, pass_session
from kube.errors import Conflict, Forbidden, NotFound, TooManyRequests
from kube.resources import NAMESPACES, PODS, Selection
from kube.types import Namespace, ObjectMeta

MARK = f'"{PLACEMENT}"'.encode()
"""What is in the metadata of each pod that has a placement, as JSON."""
PENDING = "status.phase=Pending"
NO_NODE = "<none>"


@click.group(cls=Commands)
def elasticity() -> None:
    """See where pods are placed, and return them."""


@elasticity.command("list", cls=Command)
@pass_session
def list_placements(session: Session) -> None:
    """List placed and waiting pods, with the reason."""
    pods, super_nodes = pods_and_super_nodes(Inventory(session.cluster), session.scope)
    value = Placements(listed(pods, super_nodes))
    session.output.show(value, timed(parts_of, session.cluster.now))


@elasticity.command("return", cls=Command)
@click.argument("pods", metavar="[POD...]", nargs=-1)
@pass_session
def return_pods(session: Session, pods: tuple[str, ...]) -> None:
    """Evict pods from super nodes.

    Their replacements run on local nodes if these have room now. Without names, all pods of the namespace are
    evicted that run there because local nodes were full. Disruption budgets are respected.
    """
    found, super_nodes = pods_and_super_nodes(Inventory(session.cluster), session.namespace)
    chosen = to_return(found, super_nodes, pods)
    if not chosen:
        session.output.say(f"no pod of namespace {session.namespace} is to return; nothing was changed")
        return
    names = (f"  {each.pod} on {each.node}" for each in chosen)
    session.confirm(f"Pods of namespace {session.namespace} to evict:", *names, "Evict?")
    evicted = [_evict(session, each) for each in chosen]
    if not all(evicted):
        raise SystemExit(WRONG)


def _evict(session: Session, chosen: Placement) -> bool:
    try:
        session.cluster.client.evict(chosen.pod, chosen.namespace, preconditions={"uid": chosen.uid})
    except TooManyRequests as error:
        session.output.say(f"{chosen.pod}: not evicted: {error.message}")
        return False
    except (NotFound, Conflict):
        session.output.say(f"{chosen.pod}: has gone in the meantime")
        return True
    session.output.say(f"{chosen.pod}: evicted from {chosen.node}")
    return True


class _Listed(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class _Object(msgspec.Struct):
    metadata: ObjectMeta


def pods_and_super_nodes(inventory: Inventory, namespace: str | None) -> tuple[list[Pod], set[str]]:
    """Pods that are pending, placed or on super nodes, of *namespace* or all; and the super nodes. KubeError."""
    found = inventory.cluster.read_all(
        {
            "super nodes": inventory.super_nodes,
            "namespaces": partial(_namespaces, inventory, namespace),
            "pending": partial(inventory.cached, PODS, Pod, Selection(namespace, field_selector=PENDING)),
        }
    )
    names, super_nodes = found["namespaces"], found["super nodes"]
    reads: dict[str, Callable[[], Any]] = {
        f"placed in {each}": partial(_placed, inventory, each) for each in names
    }
    reads |= {f"on {each}": partial(_on_node, inventory, namespace, each) for each in super_nodes}
    listed = inventory.cluster.read_all(reads)
    known = {each.metadata.uid: each for each in found["pending"]}
    known |= {each.metadata.uid: each for name in super_nodes for each in listed[f"on {name}"]}
    others = [each for name in names for each in listed[f"placed in {name}"] if each.uid not in known]
    return [*known.values(), *_on_local_nodes(inventory, others)], {*super_nodes}


def _namespaces(inventory: Inventory, namespace: str | None) -> Sequence[str | None]:
    """Each is listed alone, since the API server makes several lists at a time; without permission all are one."""
    if namespace:
        return [namespace]
    try:
        return [each.metadata.name for each in inventory.cached(NAMESPACES, Namespace)]
    except Forbidden:
        return [None]


def _placed(inventory: Inventory, namespace: str | None) -> list[ObjectMeta]:
    return _metadata(inventory.cluster.without_specs(PODS, Selection(namespace)), MARK)


def _on_node(inventory: Inventory, namespace: str | None, node: str) -> list[Pod]:
    selection = Selection(namespace, field_selector=f"spec.nodeName={node}")
    return [Pod(each, PodSpec(node)) for each in _metadata(inventory.cluster.without_specs(PODS, selection))]


def _metadata(content: bytes, mark: bytes = b"") -> list[ObjectMeta]:
    """Of the objects in *content* that have *mark* in them: few are decoded."""
    if mark not in content:
        return []
    items = msgspec.json.decode(content, type=_Listed).items or ()
    return [msgspec.json.decode(each, type=_Object).metadata for each in items if mark in bytes(each)]


def _on_local_nodes(inventory: Inventory, placed: Iterable[ObjectMeta]) -> list[Pod]:
    """With their nodes; without those that have gone since."""
    by_namespace: dict[str, list[ObjectMeta]] = {}
    for each in placed:
        by_namespace.setdefault(each.namespace, []).append(each)
    nodes = inventory.cluster.read_all(
        {name: partial(inventory.cluster.column, PODS, "Node", Selection(name)) for name in by_namespace}
    )
    found = [
        Pod(each, PodSpec(nodes[name][each.name]))
        for name, held in by_namespace.items()
        for each in held
        if each.name in nodes[name]
    ]
    return [replace(each, spec=PodSpec()) if each.spec.node_name == NO_NODE else each for each in found]
