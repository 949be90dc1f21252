"""Keep one super node per configured subnet; never remove one that has pods.

`manifest` is what a super node of ours has, `difference` the drift of it that is corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
import structlog

from api.elasticity import TAINT, is_daemon_pod
from controllers.elasticity.nodes import OF_SETTINGS, is_subnet_taint, subnet_labels, subnet_taints
from controllers.manager import Context
from kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from kube.event_recorder import Regarding, Type
from kube.resources import NODES, PODS
from kube.types import INSTANCE_TYPE, SUPER_NODE, Node, Pod, Taint, is_super
from runtime import utc_now
from settings import ElasticitySettings
from settings.elasticity import Subnet

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "drawbridge"
SUBNET_ID = "eks.tke.cloud.tencent.com/subnet-id"
RESOLV_CONF = "eks.tke.cloud.tencent.com/resolv-conf"
ZONE_NAME = "eks.tke.cloud.tencent.com/zone-name"
VERSION = "eks.tke.cloud.tencent.com/version"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
CBS_ZONE = "topology.com.tencent.cloud.csi.cbs/zone"
"""By this label, volumes of the CBS driver name the zone of their disk."""
OS, ARCH, HOSTNAME = "kubernetes.io/os", "kubernetes.io/arch", "kubernetes.io/hostname"
RETIRED_AT = "drawbridge.io/retired-at"
"""When a super node stopped taking pods because its subnet is not configured any more."""

GIVEN = (ZONE, VERSION, REGION, CBS_ZONE)
"""Labels that are written once, and again for another zone: eklet and users may set others."""
OF_MACHINE = (OS, ARCH, HOSTNAME)
"""Labels that are written once."""


def name_of(subnet: Subnet) -> str:
    return f"eklet-{subnet.id}"


def manifest(subnet: Subnet, settings: ElasticitySettings) -> dict[str, Any]:
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
    spec = {"taints": [msgspec.to_builtins(taint) for taint in (TAINT, *subnet_taints(subnet, settings))]}
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
    taints = _taints(node.spec.taints, msgspec.convert(wanted["spec"]["taints"], tuple[Taint, ...]))
    if taints != node.spec.taints:
        spec["taints"] = [msgspec.to_builtins(taint) for taint in taints]
    metadata = _given(labels={**changed, **gone}, annotations=annotations)
    return _given(metadata=metadata, spec=spec)


def _taints(held: tuple[Taint, ...], wanted: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Those of others stay, and of ours what is *wanted*."""
    names = {_name(taint) for taint in wanted}
    kept = tuple(taint for taint in held if _name(taint) in names or not is_subnet_taint(taint))
    missing = names.difference(map(_name, kept))
    return (*kept, *(taint for taint in wanted if _name(taint) in missing))


def _name(taint: Taint) -> tuple[str, str]:
    return taint.key, taint.effect


def _other(held: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in wanted.items() if held.get(key) != value}


def _given(**parts: dict[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in parts.items() if part}


SETTLE = timedelta(seconds=30)
"""Longer than a scheduler needs to carry out what it decided before it saw the node closed."""


log = structlog.stdlib.get_logger(__name__)


Verb = Literal["create", "change", "remove", "nothing"]


@dataclass(frozen=True)
class Action:
    """*node* is as it was seen, None when there was none; *body* is the whole of it, or a merge patch.

    *reason* and *message* are the Event's on the node.
    """

    verb: Verb
    name: str
    node: Node | None
    reason: str
    message: str
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def type(self) -> Type:
        return "Warning" if self.verb == "nothing" else "Normal"


def is_ours(node: Node) -> bool:
    return node.metadata.labels.get(MANAGED_BY) == MANAGER


def leftovers(nodes: Iterable[Node], settings: ElasticitySettings) -> list[Node]:
    """Super nodes of ours whose subnets are not configured any more."""
    wanted = {name_of(subnet) for subnet in settings.subnets}
    return [
        node
        for node in nodes
        if is_ours(node) and _stays(node) and is_super(node) and node.metadata.name not in wanted
    ]


def may_go(node: Node, now: datetime) -> bool:
    """Whether a leftover has been closed for so long that no pod is on its way to it."""
    return now - SETTLE >= (_retired_at(node) or now)


def plan(
    nodes: Iterable[Node], occupied: Mapping[str, bool], settings: ElasticitySettings, now: datetime
) -> list[Action]:
    """*occupied* says by name whether a leftover that may go has pods."""
    nodes = list(nodes)
    by_name = {node.metadata.name: node for node in nodes}
    kept = [_keep(by_name.get(name_of(subnet)), manifest(subnet, settings)) for subnet in settings.subnets]
    left = [_retire(node, occupied, now) for node in leftovers(nodes, settings)]
    return [action for action in (*kept, *left) if action]


def _keep(node: Node | None, wanted: Mapping[str, Any]) -> Action | None:
    name = wanted["metadata"]["name"]
    if node is None:
        message = f"The super node of {name.removeprefix('eklet-')} is registered"
        return Action("create", name, None, "SuperNodeRegistered", message, wanted)
    if not _stays(node):
        return None
    if not is_ours(node):
        message = f"Not managed by Drawbridge. To adopt it, label it {MANAGED_BY}={MANAGER}"
        return Action("nothing", name, node, "SuperNodeNotOurs", message)
    if not (change := difference(node, wanted)):
        return None
    parts = (*change.get("metadata", {}).values(), change.get("spec", {}))
    message = f"Set as configured: {', '.join(key for part in parts for key in part)}"
    return Action("change", name, node, "SuperNodeRestored", message, change)


def _retire(node: Node, occupied: Mapping[str, bool], now: datetime) -> Action | None:
    name = node.metadata.name
    if _retired_at(node) is None:
        message = "Its subnet is no longer configured: the node is removed when it has no pods"
        closed = {"metadata": {"annotations": {RETIRED_AT: now.isoformat()}}, "spec": {"unschedulable": True}}
        return Action("change", name, node, "SuperNodeRetired", message, closed)
    if not may_go(node, now) or occupied.get(name, True):
        return None
    message = "Its subnet is not configured, and it was empty"
    return Action("remove", name, node, "SuperNodeRemoved", message)


def _retired_at(node: Node) -> datetime | None:
    """None, too, for a value that is not a time with a zone: the node is retired once more."""
    try:
        at = datetime.fromisoformat(node.metadata.annotations.get(RETIRED_AT, ""))
    except ValueError:
        return None
    return at if at.tzinfo else None


def _stays(node: Node) -> bool:
    return node.metadata.deletion_timestamp is None


class SuperNodeReconciler:
    """*nodes* are read from the informer."""

    def __init__(
        self,
        context: Context,
        nodes: Callable[[], Iterable[Node]],
        settings: Callable[[], ElasticitySettings],
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client, self._recorder = context.client, context.recorder
        self._nodes, self._settings, self._now = nodes, settings, now
        self._reported: dict[str, str] = {}

    def reconcile(self) -> None:
        """One action that fails stops no other, and is tried again next time. LeadershipLost."""
        nodes, settings, now = list(self._nodes()), self._settings(), self._now()
        leaving = [node.metadata.name for node in leftovers(nodes, settings) if may_go(node, now)]
        occupied = {name: self._is_occupied(name) for name in leaving}
        for action in plan(nodes, occupied, settings, now):
            self._try(action)

    def _is_occupied(self, name: str) -> bool:
        """As the API server has it now, and while it cannot be read; pods of DaemonSets go with their node."""
        try:
            pods = self._client.list(PODS, type=Pod, field_selector=f"spec.nodeName={name}").items
        except KubeError as error:
            log.warning("pods of super node not read", node=name, error=str(error))
            return True
        return not all(is_daemon_pod(pod.metadata) for pod in pods)

    def _try(self, action: Action) -> None:
        try:
            self._report(action, self._run(action))
        except (AlreadyExists, Conflict, NotFound):
            log.info("super node has changed", node=action.name, action=action.verb)
        except KubeError as error:
            log.warning("super node not written", node=action.name, action=action.verb, error=str(error))

    def _run(self, action: Action) -> Node | None:
        if action.verb == "nothing":
            return action.node
        if action.node is None:
            return self._client.create(NODES, action.body, type=Node)
        seen = action.node.metadata
        version = {"uid": seen.uid, "resourceVersion": seen.resource_version}
        if action.verb == "change":
            patch = {**action.body, "metadata": {**action.body.get("metadata", {}), **version}}
            return self._client.patch(NODES, action.name, patch, type=Node)
        self._client.delete(NODES, action.name, preconditions=version)
        return action.node

    def _report(self, action: Action, node: Node | None) -> None:
        """An Event, once where nothing was done."""
        reason, message = action.reason, action.message
        is_said = action.verb == "nothing" and node and self._reported.get(node.metadata.uid) == message
        if node is None or is_said:
            return
        self._reported[node.metadata.uid] = message
        self._recorder.event(Regarding.of(node, NODES, "Node"), reason, message, type=action.type)
