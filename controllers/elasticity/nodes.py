"""Which nodes are super nodes, and whether one of them is ready."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kube.objects import Condition, Node, Value, complete
from webhook.elasticity import is_super


class NodeStatus(Value, frozen=True):
    conditions: tuple[Condition, ...] = ()


class FollowedNode(Node, frozen=True):
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        return any((each.type, each.status) == ("Ready", "True") for each in self.status.conditions)


complete(FollowedNode)


@dataclass(frozen=True)
class SuperNodes:
    names: frozenset[str] = frozenset()
    any_ready: bool = False


def super_nodes(nodes: Iterable[FollowedNode]) -> SuperNodes:
    those = [node for node in nodes if is_super(node)]
    names = frozenset(node.metadata.name for node in those)
    return SuperNodes(names, any(node.ready for node in those))


def matters(old: FollowedNode | None, new: FollowedNode | None) -> bool:
    """Not what every node reports all the time."""
    return _what_counts(old) != _what_counts(new)


def _what_counts(node: FollowedNode | None) -> tuple[bool, bool]:
    return (False, False) if node is None else (is_super(node), is_super(node) and node.ready)
