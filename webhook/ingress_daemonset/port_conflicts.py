"""A health port is bound once on a node, whichever IngressDaemonSet it is of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from webhook.ingress_daemonset.field_errors import Problem
from webhook.ingress_daemonset.types import IngressDaemonSet


@dataclass(frozen=True)
class Neighbour:
    """Another IngressDaemonSet as one of them sees it: *node* is one that both match now, or nothing."""

    key: str
    health_ports: tuple[int, ...]
    node: str


def port_problems(new: IngressDaemonSet, neighbours: Iterable[Neighbour]) -> list[Problem]:
    return [
        (
            f"spec.healthCheckNodePorts[{index}]",
            f"{port} is taken on node {other.node} by IngressDaemonSet {other.key}; give one of them another port",
        )
        for other in neighbours
        for index, port in enumerate(new.spec.health_check_node_ports)
        if other.node and port in other.health_ports
    ]


def port_warnings(new: IngressDaemonSet, neighbours: Iterable[Neighbour]) -> list[str]:
    return [
        f"healthCheckNodePort {port} is that of IngressDaemonSet {other.key}, too: no node may ever be of both"
        for other in neighbours
        for port in new.spec.health_check_node_ports
        if not other.node and port in other.health_ports
    ]
