"""The names of anycast_ip, and its predicates on nodes.

Invariant: no pod is scheduled on a selected node before its address is proven bound to that very Node object.
"""

from __future__ import annotations

from kube.types import Node, Taint, is_super
from settings import AnycastIPSettings

NAME = "anycast_ip"
PATH = "/mutate/nodes/anycast-ip"

TAINT = Taint(key="tke.cloud.tencent.com/no-aia-ip", value="true", effect="NoSchedule")
ADDRESS_ID = "tke.cloud.tencent.com/anycast-ip-id"
ADDRESS = "tke.cloud.tencent.com/anycast-ip-address"
BOUND = "drawbridge.io/anycast-ip-bound"
"""The controller's proof that it saw the address bound: ``<uid of the node>/<id of the address>``."""
HISTORY = "drawbridge.io/anycast-ip-history"
"""When the node was opened and closed, the latest first."""
CONDITION = "AnycastIPReady"
"""The type of the Node condition that says whether the address is bound."""


def wanted(node: Node, settings: AnycastIPSettings) -> bool:
    """Whether *node* needs an address: it has all configured labels and is no super node, which has no instance."""
    return settings.node_labels.items() <= node.metadata.labels.items() and not is_super(node)


def is_tainted(node: Node) -> bool:
    return any(is_ours(taint) for taint in node.spec.taints)


def is_ours(taint: Taint) -> bool:
    """By key and effect, as Kubernetes identifies taints."""
    return (taint.key, taint.effect) == (TAINT.key, TAINT.effect)


def is_proven_bound(node: Node) -> bool:
    """Whether the proof is of this Node object; one that was created again or restored needs a new proof."""
    uid, _, address = node.metadata.annotations.get(BOUND, "").partition("/")
    return bool(address) and uid == node.metadata.uid != ""


def proof(node: Node, address_id: str) -> str:
    return f"{node.metadata.uid}/{address_id}"
