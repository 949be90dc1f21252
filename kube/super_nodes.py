"""Super nodes: nodes without a machine, behind which the cloud's virtual kubelet runs pods."""

from __future__ import annotations

from kube.types import Node

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
SUPER_NODE = "eklet"
"""The instance type of super nodes: the name of the virtual kubelet."""


def is_super(node: Node) -> bool:
    return node.metadata.labels.get(INSTANCE_TYPE) == SUPER_NODE
