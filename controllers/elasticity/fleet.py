"""The super nodes with all that is on them and on its way: does one of them take a pod?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import msgspec

from controllers.elasticity.filters import Request, is_asked_for, is_passing, misses
from controllers.elasticity.nodes import FollowedNode, SuperNodes
from controllers.elasticity.topology import Lookup, Topology

NONE_THERE = "there is no super node"


class Fleet:
    """Built for one turn. *under_way* are pods without a node that may get one of these."""

    def __init__(self, nodes: SuperNodes, having: Lookup, under_way: Iterable[Request]) -> None:
        self._nodes, self._having = nodes, having
        self._waiting = list(under_way)
        self._repelling = bool(having("repels")) or any(each.pod.repels for each in self._waiting)
        self._asked: dict[bytes, bool] = {}

    @cached_property
    def _topology(self) -> Topology:
        return Topology((*self._nodes.super, *self._nodes.local), self._nodes.super, self._having)

    def why_not(self, request: Request) -> str:
        """Nothing when a super node takes the pod."""
        if not self._nodes.super:
            return NONE_THERE
        found, missed = self._fitting(request)
        return "" if found else _sentence(missed)

    def passing(self, request: Request) -> list[str]:
        """The names of super nodes that nothing but their state keeps the pod off."""
        return [node.metadata.name for node in self._nodes.super if is_passing(request, node)]

    def take(self, request: Request) -> None:
        """From now on the pod counts as on its way."""
        self._waiting.append(request)
        self._repelling = self._repelling or bool(request.pod.repels)

    def is_asked_for(self, request: Request) -> bool:
        """Whether the pod asks for super nodes: by labels or name, one of them suits it, and no other node."""
        asks = request.scheduling
        if not asks.node_selector and asks.required is None:
            return False
        cached = msgspec.json.encode((asks.node_selector, asks.required))
        if cached not in self._asked:
            self._asked[cached] = any(is_asked_for(request, node) for node in self._nodes.super) and not any(
                is_asked_for(request, node) for node in self._nodes.local
            )
        return self._asked[cached]

    def _fitting(self, request: Request) -> tuple[Sequence[FollowedNode], list[str]]:
        """Nodes that take it; else what they miss."""
        missed = {node.metadata.name: misses(request, node) for node in self._nodes.super}
        suitable = [node for node in self._nodes.super if not missed[node.metadata.name]]
        if not suitable:
            return (), _distinct(missed.values())
        if not self._is_constrained(request):
            return suitable, []
        self._settle()
        crowded = {node.metadata.name: list(self._topology.misses(request, node)) for node in suitable}
        free = [node for node in suitable if not crowded[node.metadata.name]]
        return free, _distinct(crowded.values())

    def _is_constrained(self, request: Request) -> bool:
        """Whether other pods matter: for most pods they do not, and are not looked at."""
        asks = request.scheduling
        own = asks.host_ports or asks.repels or asks.attracts or asks.spread
        return bool(own) or self._repelling

    def _settle(self) -> None:
        """Expect each pod that is on its way on the first node that takes it."""
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            suitable = [node for node in self._nodes.super if not misses(request, node)]
            free = (node for node in suitable if not any(self._topology.misses(request, node)))
            if expected := next(free, suitable[0] if suitable else None):
                self._topology.add(request.pod, expected.metadata.name)


def _distinct(missed: Iterable[list[str]]) -> list[str]:
    return list(dict.fromkeys(miss for each in missed for miss in each))


def _sentence(missed: Sequence[str]) -> str:
    return (
        f"no super node {missed[0]}" if len(missed) == 1 else f"no super node does all: {'; '.join(missed)}"
    )
