"""Whether an IngressDaemonSet runs on a node, by the rules of DaemonSets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from api.ingress_daemonset.template import PodSpec, template_of
from api.ingress_daemonset.types import IngressDaemonSet
from kube.selectors import NodeSelector, is_tolerated, selects
from kube.types import Condition, Node, Taint, Toleration, Value, complete, is_super

OF_DAEMONS = (
    Toleration(key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute"),
    Toleration(key="node.kubernetes.io/unreachable", operator="Exists", effect="NoExecute"),
    Toleration(key="node.kubernetes.io/disk-pressure", operator="Exists", effect="NoSchedule"),
    Toleration(key="node.kubernetes.io/memory-pressure", operator="Exists", effect="NoSchedule"),
    Toleration(key="node.kubernetes.io/pid-pressure", operator="Exists", effect="NoSchedule"),
    Toleration(key="node.kubernetes.io/unschedulable", operator="Exists", effect="NoSchedule"),
)
"""As the DaemonSet controller adds them to its pods."""
OF_HOST_NETWORK = Toleration(
    key="node.kubernetes.io/network-unavailable", operator="Exists", effect="NoSchedule"
)
CORDONED = "node.kubernetes.io/unschedulable"
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
"""The label of nodes that cloud controllers leave out."""
TO_BE_DELETED = ("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted")
"""Taints of nodes that an autoscaler is about to drain and delete."""


class Address(Value, frozen=True):
    type: str = ""
    address: str = ""


class NodeStatus(Value, frozen=True):
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[Address, ...] = ()


class FollowedNode(Node, frozen=True):
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def ready(self) -> bool:
        return any((each.type, each.status) == ("Ready", "True") for each in self.status.conditions)

    @property
    def ready_since(self) -> datetime | None:
        """By the clock that has written it; None, too, while it is not Ready."""
        found = (each for each in self.status.conditions if (each.type, each.status) == ("Ready", "True"))
        return next((each.last_transition_time for each in found), None)

    @property
    def cordoned(self) -> bool:
        return self.spec.unschedulable or any(each.key == CORDONED for each in self.spec.taints)

    @property
    def to_be_deleted(self) -> bool:
        return any(each.key in TO_BE_DELETED for each in self.spec.taints)

    @property
    def excluded(self) -> bool:
        return EXCLUDED in self.metadata.labels

    @property
    def address(self) -> str:
        """The InternalIP, on which pods of the host network listen; empty when it has none yet."""
        found = (each.address for each in self.status.addresses if each.type == "InternalIP")
        return next(found, "")


@dataclass(frozen=True)
class Where:
    """What an IngressDaemonSet requires of nodes."""

    labels: Mapping[str, str]
    affinity: NodeSelector | None
    tolerations: tuple[Toleration, ...]


def where_of(resource: IngressDaemonSet) -> Where:
    """msgspec.ValidationError."""
    pod = template_of(resource.spec).spec
    labels = {**pod.node_selector, **resource.spec.node_selector}
    return Where(labels, pod.affinity.node_affinity.required, tolerations(pod))


def matches(where: Where, node: FollowedNode, *, runs: bool) -> bool:
    """*runs* is whether pods run there already; a cordoned node matches like any other."""
    labels = node.metadata.labels
    if is_super(node) or node.metadata.deletion_timestamp is not None:
        return False
    if any(labels.get(key) != value for key, value in where.labels.items()) or not _attracts(where, node):
        return False
    return all(is_tolerated(taint, where.tolerations) for taint in node.spec.taints if _repels(taint, runs))


def tolerations(pod: PodSpec) -> tuple[Toleration, ...]:
    """Of the *pod*, and those that all pods of DaemonSets have."""
    added = (*OF_DAEMONS, OF_HOST_NETWORK) if pod.host_network else OF_DAEMONS
    return (*pod.tolerations, *(each for each in added if each not in pod.tolerations))


def _repels(taint: Taint, runs: bool) -> bool:
    return taint.effect == "NoExecute" or (taint.effect == "NoSchedule" and not runs)


def _attracts(where: Where, node: FollowedNode) -> bool:
    return where.affinity is None or selects(where.affinity, node.name, node.metadata.labels)


complete(Address, NodeStatus, FollowedNode)
