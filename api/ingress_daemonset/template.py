"""The pod template of an IngressDaemonSet, as far as it is read, and on which nodes its pods run: as a DaemonSet's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from api.ingress_daemonset.types import IngressDaemonSet, Spec, resource
from kube.selectors import NodeAffinity, NodeSelector, is_tolerated, selects
from kube.types import Node, ObjectMeta, Toleration, Value, is_super


class Port(Value, frozen=True):
    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"


class Container(Value, frozen=True):
    name: str = ""
    image: str = ""
    ports: tuple[Port, ...] = ()
    restart_policy: str = ""
    """Always, of an init container that runs beside the others."""


class Affinity(Value, frozen=True):
    node_affinity: NodeAffinity = NodeAffinity()


class PodSpec(Value, frozen=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_selector: dict[str, str] = {}
    node_name: str = ""
    host_network: bool = False
    restart_policy: str = "Always"
    active_deadline_seconds: int | None = None
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()


class Template(Value, frozen=True):
    """The parts of a template that are checked."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


def template_of(spec: Spec) -> Template:
    """Raises msgspec.ValidationError."""
    return msgspec.convert(_without_nulls(spec.template), Template)


def readable(raw: Mapping[str, Any]) -> IngressDaemonSet:
    """*raw* with all defaults. msgspec.ValidationError when a field of it, or of its template, has a wrong type."""
    template_of(msgspec.convert(raw, IngressDaemonSet).spec)
    return resource(raw)


def _without_nulls(part: Any) -> Any:
    """As in Kubernetes: a field that is null is absent."""
    if isinstance(part, Mapping):
        return {key: _without_nulls(value) for key, value in part.items() if value is not None}
    return [_without_nulls(each) for each in part] if isinstance(part, list) else part


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


class FollowedNode(Node, frozen=True):
    @property
    def name(self) -> str:
        return self.metadata.name

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
        return next(iter(self.addresses), "")

    @property
    def addresses(self) -> tuple[str, ...]:
        """Its InternalIPs; of a node with two IP families, one of each."""
        return tuple(each.address for each in self.status.addresses if each.type == "InternalIP")


@dataclass(frozen=True)
class Where:
    """What an IngressDaemonSet requires of nodes."""

    labels: Mapping[str, str]
    affinity: NodeSelector | None
    tolerations: tuple[Toleration, ...]

    def matches(self, node: FollowedNode, *, runs: bool) -> bool:
        """*runs* is whether pods run there already; a cordoned node matches like any other."""
        labels = node.metadata.labels
        if is_super(node) or node.metadata.deletion_timestamp is not None:
            return False
        if not self.labels.items() <= labels.items():
            return False
        if self.affinity is not None and not selects(self.affinity, node.name, labels):
            return False
        repelling = ("NoExecute",) if runs else ("NoExecute", "NoSchedule")
        taints = (each for each in node.spec.taints if each.effect in repelling)
        return all(is_tolerated(each, self.tolerations) for each in taints)


def where_of(resource: IngressDaemonSet) -> Where:
    """msgspec.ValidationError."""
    pod = template_of(resource.spec).spec
    return Where(node_labels(resource), pod.affinity.node_affinity.required, tolerations(pod))


def node_labels(resource: IngressDaemonSet) -> dict[str, str]:
    """Those of the template, and of the spec."""
    of_pods = (resource.spec.template.get("spec") or {}).get("nodeSelector") or {}
    wanted = {**of_pods, **resource.spec.node_selector}
    return {key: value for key, value in wanted.items() if value is not None}


def may_match(resource: IngressDaemonSet, node: FollowedNode) -> bool:
    """False only where `matches` is false, whose template may be the former one; it costs next to nothing."""
    if resource.stored.rollback:
        return True
    return node_labels(resource).items() <= node.metadata.labels.items()


def tolerations(pod: PodSpec) -> tuple[Toleration, ...]:
    """Of the *pod*, and those that all pods of DaemonSets have."""
    added = (*OF_DAEMONS, OF_HOST_NETWORK) if pod.host_network else OF_DAEMONS
    return (*pod.tolerations, *(each for each in added if each not in pod.tolerations))
