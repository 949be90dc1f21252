"""The gate of anycast_ip, as it is measured: nodes that need an address, and others."""

from __future__ import annotations

from typing import Any

import msgspec

from api.anycast_ip import PATH, is_tainted
from dev.bench.admission import Gate, Marks
from dev.lab.nodes import cloud_node
from kube.resources import NODES
from kube.types import Node
from settings.anycast_ip import NEED_LABEL


def review(number: int, labels: Marks) -> dict[str, Any]:
    """Of a node with *labels*, which its kubelet creates."""
    name = f"dry-{number}"
    return {
        "kind": {"group": "", "version": "v1", "kind": "Node"},
        "resource": {"group": "", "version": "v1", "resource": "nodes"},
        "name": name,
        "userInfo": {"username": f"system:node:{name}", "groups": ["system:nodes", "system:authenticated"]},
        "object": cloud_node(name, f"ins-{number:08x}", labels),
    }


def _is_tainted(created: msgspec.Raw) -> bool:
    return is_tainted(msgspec.json.decode(created, type=Node))


GATE = Gate(
    path=PATH,
    objects=NODES.path(),
    one="node",
    held="tainted",
    others="nodes without the label",
    marks={NEED_LABEL: "true"},
    review=review,
    is_held=_is_tainted,
)
