"""Which nodes are super nodes, whether one of them is ready, and for how long one has not been."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from controllers.elasticity.tiers import tier_of
from kube.informer import Informer
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


class NodeCache:
    """The nodes of *informer*, sorted out once for each change."""

    def __init__(self, informer: Informer[WatchedNode]) -> None:
        self._informer = informer
        self._changes = 0
        self._sorted = 0, sorted_out(())
        informer.on_change(lambda *_: self._count())

    def __call__(self) -> Nodes:
        changes, (as_of, known) = self._changes, self._sorted
        if as_of != changes:
            known = sorted_out(self._informer.list())
            self._sorted = changes, known
        return known

    def _count(self) -> None:
        self._changes += 1


class Outages:
    """For how long this leader has seen super nodes in a state that passes; *clock* is monotonic, in seconds.

    Nodes say since when, too, but a provider may renew that time with every report, and pods would wait indefinitely.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def observe(self, nodes: Iterable[WatchedNode]) -> None:
        now = self._clock()
        self._since = {
            node.metadata.name: self._since.get(node.metadata.name, now) for node in nodes if node.in_trouble
        }

    def seconds(self, name: str) -> float:
        return self._clock() - self._since.get(name, self._clock())


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
