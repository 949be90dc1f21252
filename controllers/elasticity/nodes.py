"""Which nodes are super nodes, and whether one of them is ready."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kube.super_nodes import is_super
from kube.types import Condition, Node, Value, complete


class NodeStatus(Value, frozen=True):
    conditions: tuple[Condition, ...] = ()
    allocatable: dict[str, str] = {}


class FollowedNode(Node, frozen=True):
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        return any((each.type, each.status) == ("Ready", "True") for each in self.status.conditions)


complete(FollowedNode)


@dataclass(frozen=True)
class SuperNodes:
    """*names* are those of *super*; *local* are all other nodes."""

    names: frozenset[str] = frozenset()
    any_ready: bool = False
    super: tuple[FollowedNode, ...] = ()
    local: tuple[FollowedNode, ...] = ()


def super_nodes(nodes: Iterable[FollowedNode]) -> SuperNodes:
    nodes = sorted(nodes, key=lambda node: node.metadata.name)
    those = tuple(node for node in nodes if is_super(node))
    names = frozenset(node.metadata.name for node in those)
    local = tuple(node for node in nodes if not is_super(node))
    return SuperNodes(names, any(node.ready for node in those), those, local)


def matters(old: FollowedNode | None, new: FollowedNode | None) -> bool:
    """Not what every node reports all the time."""
    return _what_counts(old) != _what_counts(new)


def _what_counts(node: FollowedNode | None) -> object:
    if node is None or not is_super(node):
        return None
    return (
        node.ready,
        node.metadata.labels,
        node.spec.taints,
        node.spec.unschedulable,
        node.status.allocatable,
    )
