"""Keep one super node per configured subnet; never remove one that has pods.

`manifest` is what a super node of ours has, `difference` the drift of it that is corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import msgspec
import structlog

from api.elasticity import TAINT, is_daemon_pod
from controllers.controller import CLOCK, Clock
from controllers.elasticity.nodes import (
    MANAGED_BY,
    MANAGER,
    NOT_STARTING,
    OF_SETTINGS,
    is_subnet_taint,
    subnet_labels,
    subnet_taints,
)
from controllers.elasticity.pods import HOSTNAME, Observed
from controllers.manager import Context
from kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from kube.event_recorder import Regarding, Type
from kube.resources import NODES, PODS
from kube.types import INSTANCE_TYPE, SUPER_NODE, Node, Pod, Taint, is_super
from settings import ElasticitySettings
from settings.elasticity import Subnet

SUBNET_ID = "eks.tke.cloud.tencent.com/subnet-id"
RESOLV_CONF = "eks.tke.cloud.tencent.com/resolv-conf"
ZONE_NAME = "eks.tke.cloud.tencent.com/zone-name"
VERSION = "eks.tke.cloud.tencent.com/version"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
CBS_ZONE = "topology.com.tencent.cloud.csi.cbs/zone"
"""By this label, volumes of the CBS driver name the zone of their disk."""
OS, ARCH = "kubernetes.io/os", "kubernetes.io/arch"
RETIRED_AT = "drawbridge.io/retired-at"
"""When a super node stopped taking pods because its subnet is not configured any more."""

GIVEN = (ZONE, VERSION, REGION, CBS_ZONE)
"""Labels that are written once, and again for another zone: eklet and users may set others."""
OF_MACHINE = (OS, ARCH, HOSTNAME)
"""Labels that are written once."""


def name_of(subnet: Subnet) -> str:
    return f"eklet-{subnet.id}"


def manifest(subnet: Subnet, settings: ElasticitySettings, *, avoided: bool = False) -> dict[str, Any]:
    """As the original's chart registers it, without its finalizer, with the well-known labels and our own.

    Well-known are those that a kubelet and a cloud provider give: selectors and volumes of usual charts ask for them.
    """
    region = {REGION: settings.region} if settings.region else {}
    resolv_conf = {RESOLV_CONF: settings.resolv_conf} if settings.resolv_conf else {}
    labels = {
        INSTANCE_TYPE: SUPER_NODE,
        ZONE_NAME: subnet.zone,
        VERSION: "v2",
        MANAGED_BY: MANAGER,
        ZONE: subnet.zone,
        CBS_ZONE: subnet.zone,
        OS: "linux",
        ARCH: "amd64",
        HOSTNAME: name_of(subnet),
        **region,
        **subnet_labels(subnet, settings),
    }
    metadata = {
        "name": name_of(subnet),
        "labels": labels,
        "annotations": {SUBNET_ID: subnet.id, **resolv_conf},
    }
    taints = (TAINT, *subnet_taints(subnet, settings), *((NOT_STARTING,) if avoided else ()))
    spec = {"taints": [msgspec.to_builtins(taint) for taint in taints]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}


def difference(node: Node, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch that makes *node* what is *wanted*, and leaves all else."""
    held, labels = node.metadata, wanted["metadata"]["labels"]
    has_moved = held.labels.get(ZONE_NAME) != labels[ZONE_NAME]
    kept = held.labels.keys() & (OF_MACHINE if has_moved else (*OF_MACHINE, *GIVEN))
    changed = {key: value for key, value in _other(held.labels, labels).items() if key not in kept}
    gone = {key: None for key in OF_SETTINGS if key in held.labels and key not in labels}
    annotations: dict[str, Any] = _other(held.annotations, wanted["metadata"]["annotations"])
    spec: dict[str, Any] = {}
    if RETIRED_AT in held.annotations:
        annotations[RETIRED_AT], spec["unschedulable"] = None, None
    # Taints of others stay, and of ours what is wanted.
    asked = msgspec.convert(wanted["spec"]["taints"], tuple[Taint, ...])
    names = {(taint.key, taint.effect) for taint in asked}
    taints = [
        taint
        for taint in node.spec.taints
        if (taint.key, taint.effect) in names or not is_subnet_taint(taint)
    ]
    missing = names.difference((taint.key, taint.effect) for taint in taints)
    taints += [taint for taint in asked if (taint.key, taint.effect) in missing]
    if taints != [*node.spec.taints]:
        spec["taints"] = [msgspec.to_builtins(taint) for taint in taints]
    metadata = _given(labels={**changed, **gone}, annotations=annotations)
    return _given(metadata=metadata, spec=spec)


def _other(held: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in wanted.items() if held.get(key) != value}


def _given(**parts: dict[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in parts.items() if part}


SETTLE = 30.0
"""Seconds: longer than a scheduler needs to carry out what it decided before it saw the node closed."""


NONE_CLOSED: Mapping[str, float] = {}

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True)
class Action:
    """*node* is as it was seen, None when there was none; *body* is the whole of it, or a merge patch.

    *reason* and *message* are the Event's on the node. It is removed only when it has no pods.
    """

    verb: Literal["create", "change", "remove", "nothing"]
    name: str
    node: Node | None
    reason: str
    message: str
    body: Mapping[str, Any] = field(default_factory=dict)


def plan(
    nodes: Iterable[Node],
    settings: ElasticitySettings,
    now: datetime,
    avoided: Container[str] = (),
    closed: Mapping[str, float] = NONE_CLOSED,
) -> list[Action]:
    """*avoided* are super nodes that recently did not start pods: as long as others take them, those go there.

    *closed* are the seconds for which this leader has seen those closed that are retired.
    """
    by_name = {node.metadata.name: node for node in nodes}
    bodies = [manifest(subnet, settings, avoided=name_of(subnet) in avoided) for subnet in settings.subnets]
    wanted = {body["metadata"]["name"]: body for body in bodies}
    actions = [_keep(name, by_name.get(name), body) for name, body in wanted.items()]
    actions += [
        _retire(name, node, now, closed.get(name)) for name, node in by_name.items() if name not in wanted
    ]
    return [action for action in actions if action]


def _keep(name: str, node: Node | None, wanted: Mapping[str, Any]) -> Action | None:
    if node is None:
        message = f"The super node of {name.removeprefix('eklet-')} is registered"
        return Action("create", name, None, "SuperNodeRegistered", message, wanted)
    if node.metadata.deletion_timestamp:
        return None
    if node.metadata.labels.get(MANAGED_BY) != MANAGER:
        message = f"Not managed by Drawbridge. To adopt it, label it {MANAGED_BY}={MANAGER}"
        return Action("nothing", name, node, "SuperNodeNotOurs", message)
    if not (change := difference(node, wanted)):
        return None
    parts = (*change.get("metadata", {}).values(), change.get("spec", {}))
    message = f"Set as configured: {', '.join(key for part in parts for key in part)}"
    return Action("change", name, node, "SuperNodeRestored", message, change)


def _retire(name: str, node: Node, now: datetime, closed: float | None) -> Action | None:
    """A super node of ours whose subnet is not configured any more."""
    is_ours = node.metadata.labels.get(MANAGED_BY) == MANAGER
    if not (is_ours and is_super(node)) or node.metadata.deletion_timestamp:
        return None
    if closed is None:
        message = "Its subnet is no longer configured: the node is removed when it has no pods"
        change = {"metadata": {"annotations": {RETIRED_AT: now.isoformat()}}, "spec": {"unschedulable": True}}
        return Action("change", name, node, "SuperNodeRetired", message, change)
    if closed < SETTLE:
        return None
    return Action(
        "remove", name, node, "SuperNodeRemoved", "Its subnet is no longer configured, and it had no pods"
    )


class SuperNodeReconciler:
    """*nodes* are read from the informer."""

    def __init__(
        self,
        context: Context,
        nodes: Callable[[], Iterable[Node]],
        settings: Callable[[], ElasticitySettings],
        clock: Clock = CLOCK,
        avoided: Callable[[], Container[str]] = frozenset,
    ) -> None:
        self._client, self._recorder = context.client, context.recorder
        self._nodes, self._settings, self._now, self._avoided = nodes, settings, clock.now, avoided
        self._closed = Observed(clock.monotonic)
        self._reported: set[str] = set()  # by uid

    def reconcile(self) -> None:
        """One action that fails stops no other, and is tried again next time. LeadershipLost."""
        nodes = list(self._nodes())
        closed = {
            node.metadata.name
            for node in nodes
            if RETIRED_AT in node.metadata.annotations and node.spec.unschedulable
        }
        since = self._closed.only(closed)
        for action in plan(nodes, self._settings(), self._now(), self._avoided(), since):
            try:
                if node := self._carry_out(action):
                    regarding = Regarding.of(node, NODES, "Node")
                    kind: Type = "Warning" if action.verb == "nothing" else "Normal"
                    self._recorder.event(regarding, action.reason, action.message, type=kind)
            except (AlreadyExists, Conflict, NotFound):
                log.info("super node has changed", node=action.name, action=action.verb)
            except KubeError as error:
                log.warning("super node not written", node=action.name, action=action.verb, error=str(error))

    def _carry_out(self, action: Action) -> Node | None:
        """The node that an Event is about; None without one."""
        if action.node is None:
            return self._client.create(NODES, action.body, type=Node)
        at = action.node.metadata
        if action.verb == "change":
            patch = {**action.body, "metadata": {**action.body.get("metadata", {}), **at.guard}}
            return self._client.patch(NODES, action.name, patch, type=Node)
        if action.verb == "remove":
            if self._is_occupied(action.name):
                return None
            self._client.delete(NODES, action.name, preconditions=at.guard)
        elif at.uid in self._reported:
            return None
        self._reported.add(at.uid)
        return action.node

    def _is_occupied(self, name: str) -> bool:
        """As the API server has it now. Pods of DaemonSets go with their node."""
        pods = self._client.list(PODS, type=Pod, field_selector=f"spec.nodeName={name}").items
        return not all(is_daemon_pod(pod.metadata) for pod in pods)
