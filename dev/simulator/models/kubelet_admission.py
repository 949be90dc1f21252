"""What a kubelet rejects though it was bound to its node.

https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/lifecycle/predicate.go
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dev.simulator.models.node_fit import (
    allocatable,
    host_ports,
    matches_node,
    requests_of,
    short_of,
    used_by,
)

Raw = dict[str, Any]


def rejection(spec: Raw, node: Raw, beside: Sequence[Raw]) -> tuple[str, str] | None:
    """The reason and message of its status; None for a pod that is admitted beside those."""
    if not matches_node(spec, node):
        text = "node(s) didn't match Pod's node affinity/selector"
        return "NodeAffinity", f"Predicate NodeAffinity failed: {text}"
    for name in short_of(requests_of(spec), used_by(beside), len(beside), allocatable(node)):
        return f"OutOf{name}", f"Node didn't have enough resource: {name}"
    ports = host_ports(spec)
    if ports and any(ports & host_ports(each) for each in beside):
        return "NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports"
    return None
