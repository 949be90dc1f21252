"""Why a node does not take a pod: the filters of the scheduler that look at the node alone.

Each yields what the node misses, so that messages read "no super node has gpu=true".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from msgspec.structs import replace

from controllers.elasticity.nodes import CONDITIONS, WatchedNode
from controllers.elasticity.pods import Pod
from controllers.elasticity.scheduling import Scheduling
from kube.quantities import amount
from kube.selectors import REPELLING, NodeSelector, describe, is_tolerated, selects
from kube.types import Taint

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


@dataclass(frozen=True)
class Reach:
    """A volume that only some nodes reach; *name* is how messages call it."""

    name: str
    nodes: NodeSelector


@dataclass(frozen=True)
class Request:
    """A pod with the spec that it would have, and the volumes that it mounts."""

    pod: Pod
    scheduling: Scheduling
    volumes: tuple[Reach, ...] = ()

    @cached_property
    def resources(self) -> dict[str, Decimal]:
        return self.scheduling.requests


def node_selector(request: Request, node: WatchedNode) -> Iterator[str]:
    labels = node.metadata.labels
    wanted = request.scheduling.node_selector
    if missing := [f"{key}={value}" for key, value in wanted.items() if labels.get(key) != value]:
        yield f"has {', '.join(missing)}"


def node_affinity(request: Request, node: WatchedNode) -> Iterator[str]:
    required = request.scheduling.required
    if required and not selects(required, node.metadata.name, node.metadata.labels):
        yield f"meets its required node affinity ({describe(required)})"


def unschedulable(request: Request, node: WatchedNode) -> Iterator[str]:
    if node.spec.unschedulable and not is_tolerated(UNSCHEDULABLE, request.scheduling.tolerations):
        yield "is schedulable"


def taints(request: Request, node: WatchedNode) -> Iterator[str]:
    for taint in node.spec.taints:
        if taint.effect in REPELLING and not is_tolerated(taint, request.scheduling.tolerations):
            yield f"is without taint {taint.key}:{taint.effect}"


def volumes(request: Request, node: WatchedNode) -> Iterator[str]:
    for each in request.volumes:
        if not selects(each.nodes, node.metadata.name, node.metadata.labels):
            yield f"reaches {each.name} ({describe(each.nodes)})"


def resources(request: Request, node: WatchedNode) -> Iterator[str]:
    """What the whole of *node* does not have; the scheduler decides by how much of it is free."""
    held = node.status.allocatable
    for name, wanted in request.resources.items() if held else ():
        if wanted > amount(held.get(name, "0")):
            yield f"has {wanted.normalize():f} {name}"


Filter = Callable[[Request, WatchedNode], Iterator[str]]
FILTERS: tuple[Filter, ...] = (node_selector, node_affinity, unschedulable, taints, volumes, resources)


def misses(request: Request, node: WatchedNode, filters: Iterable[Filter] = FILTERS) -> list[str]:
    """All that keeps the pod off *node*."""
    return [miss for each in filters for miss in each(request, node)]


def is_passing(request: Request, node: WatchedNode) -> bool:
    """Whether *node* would take the pod as soon as its state is better."""
    lasting = tuple(taint for taint in node.spec.taints if taint.key not in CONDITIONS)
    better = replace(node, spec=replace(node.spec, taints=lasting))
    return node.in_trouble and not misses(request, better)


def is_asked_for(request: Request, node: WatchedNode) -> bool:
    """Whether the labels and the name of *node* are what the pod asks for, whatever else keeps it off."""
    return not misses(request, node, (node_selector, node_affinity))
