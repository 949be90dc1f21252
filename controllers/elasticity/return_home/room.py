"""Where local nodes have room for a pod: an estimate, by what is requested of each node.

It is the scheduler that decides. What it counts and this does not: volumes per node, dynamic resources, and resizes
in progress. A wrong guess costs one eviction, and a pause that grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import msgspec

from controllers.elasticity.filters import Request, Topology, misses
from controllers.elasticity.nodes import Nodes, WatchedNode
from controllers.elasticity.pods import PodIndex
from kube.quantities import amount

Amounts = Mapping[str, Decimal]
PODS = "pods"
"""The resource of which each pod takes one."""


class LocalRoom:
    """Of *nodes*' local ones, with the pods on them; what is reserved counts as taken. Built for one look."""

    def __init__(self, nodes: Nodes, pods: PodIndex) -> None:
        self._nodes, self._topology = nodes.local, Topology((*nodes.local, *nodes.super), nodes.local, pods)
        self._free = {node.metadata.name: _free(node, pods) for node in nodes.local}
        self._hopeless: set[bytes] = set()
        """What asks as these do has no node, whatever other pods there are: room only becomes less."""

    def node_for(self, request: Request) -> str:
        """The name of a node that takes the pod; nothing when there is none."""
        if (shape := _shape(request)) in self._hopeless:
            return ""
        # In the order of cost: where pods are on super nodes local nodes are mostly full, and most ask for little.
        wanted = [each for each in _with_itself(request.resources).items() if each[1]]
        by_itself = False
        for node in self._nodes:
            free = self._free[node.metadata.name]
            if any(free.get(name, Decimal()) < needed for name, needed in wanted) or misses(request, node):
                continue
            by_itself = True
            if not any(self._topology.misses(request, node)):
                return node.metadata.name
        if not by_itself:
            self._hopeless.add(shape)
        return ""

    def reserve(self, request: Request) -> bool:
        """Whether a node takes the pod: it is on its way to the first one that does."""
        if not (name := self.node_for(request)):
            return False
        _take(self._free[name], request.resources)
        self._topology.add(request.pod, name)
        return True


def _free(node: WatchedNode, pods: PodIndex) -> dict[str, Decimal]:
    """What *node* has left of each resource; less than nothing where it was overcommitted."""
    free = {resource: amount(held) for resource, held in node.status.allocatable.items()}
    for pod in pods.holding(node.metadata.name):
        _take(free, pod.requests)
    return free


def _take(free: dict[str, Decimal], requests: Amounts) -> None:
    for resource, wanted in _with_itself(requests).items():
        free[resource] = free.get(resource, Decimal()) - wanted


def _with_itself(requests: Amounts) -> Amounts:
    return {**requests, PODS: Decimal(1)}


def _shape(request: Request) -> bytes:
    """All that decides which nodes suit it by itself."""
    spec, wanted = request.spec, sorted(request.resources.items())
    return msgspec.json.encode(
        (wanted, spec.node_selector, spec.required, spec.tolerations, repr(request.volumes))
    )
