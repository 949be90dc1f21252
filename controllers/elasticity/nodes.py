"""Which nodes are super nodes, and whether one of them is ready."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controllers.elasticity.tiers import tier_of
from kube.types import Condition, Node, Value, complete, is_super

CONDITIONS = tuple(
    f"node.kubernetes.io/{name}"
    for name in (
        "not-ready",
        "unreachable",
        "network-unavailable",
        "memory-pressure",
        "disk-pressure",
        "pid-pressure",
    )
)
"""Taints of a state that passes, as Kubernetes sets them."""


class NodeStatus(Value, frozen=True):
    conditions: tuple[Condition, ...] = ()
    allocatable: dict[str, str] = {}


class WatchedNode(Node, frozen=True):
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        return any((each.type, each.status) == ("Ready", "True") for each in self.status.conditions)

    @property
    def in_trouble(self) -> bool:
        """Whether it is in a state that passes."""
        return any(taint.key in CONDITIONS for taint in self.spec.taints)


complete(WatchedNode)


@dataclass(frozen=True)
class Nodes:
    """*names* are those of *super*, which are sorted by tier; *local* are all other nodes."""

    names: frozenset[str] = frozenset()
    any_ready: bool = False
    super: tuple[WatchedNode, ...] = ()
    local: tuple[WatchedNode, ...] = ()


def sorted_out(nodes: Iterable[WatchedNode]) -> Nodes:
    nodes = sorted(nodes, key=lambda node: (tier_of(node), node.metadata.name))
    those = tuple(node for node in nodes if is_super(node))
    names = frozenset(node.metadata.name for node in those)
    local = tuple(node for node in nodes if not is_super(node))
    return Nodes(names, any(node.ready for node in those), those, local)


def matters(old: WatchedNode | None, new: WatchedNode | None) -> bool:
    """Not what every node reports all the time."""
    return _what_counts(old) != _what_counts(new)


def _what_counts(node: WatchedNode | None) -> object:
    if node is None or not is_super(node):
        return None
    return (
        node.ready,
        node.metadata.labels,
        node.spec.taints,
        node.spec.unschedulable,
        node.status.allocatable,
    )
