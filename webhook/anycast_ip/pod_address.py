"""Copy the anycast IP of its node to a pod that is being bound, into the Binding.

The API server writes the annotations of a Binding to the pod together with the node: no kubelet sees the pod without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import msgspec

from api.anycast_ip import (
    ADDRESS,
    NAME,
    NODE_ADDRESS,
    POD_ADDRESS_PATH,
    POD_ADDRESS_WAIT_PATH,
    WAIT,
    is_open,
    wanted,
)
from kube.errors import KubeError
from kube.types import Node, ObjectMeta, Value
from settings import AnycastIPSettings
from webhook.admission import Decision, Name, Request, allow, change, decoded, deny

EXTERNAL = "ExternalIP"


class Target(Value, frozen=True):
    name: Annotated[Name, msgspec.Meta(min_length=1)]


class Binding(Value, frozen=True):
    target: Target
    metadata: ObjectMeta = ObjectMeta()


class AddressedNode(Node, frozen=True):
    @property
    def anycast_ip(self) -> str:
        """Empty until it is proven bound, and while it is in doubt."""
        return self.metadata.annotations.get(ADDRESS, "") if is_open(self) else ""


@dataclass(frozen=True)
class PodAddressWebhook:
    """*node* reads one, by a deadline, as it is now: the node that a scheduler saw open must not be seen before that.

    It raises KubeError. *waits*: a pod is bound only to a node that has an address, and shows it in its status.
    """

    node: Callable[[str, float], AddressedNode]
    settings: Callable[[], AnycastIPSettings]
    waits: bool = False

    @property
    def name(self) -> str:
        return f"{NAME}_pods_wait" if self.waits else f"{NAME}_pods"

    @property
    def path(self) -> str:
        return POD_ADDRESS_WAIT_PATH if self.waits else POD_ADDRESS_PATH

    def fails_open(self) -> bool:
        """Unless its namespace asks that pods wait."""
        return not self.waits

    def review(self, request: Request, deadline: float) -> Decision:
        settings = self.settings()
        if request.object is None or request.operation != "CREATE":
            return allow(audit={"skipped": "no binding"})
        if not (settings.enabled and settings.pod_address.enabled):
            return allow(audit={"skipped": "pod address is disabled"})
        binding = decoded(request.object, Binding, "object")
        name = binding.target.name
        try:
            node = self.node(name, deadline)
        except KubeError as error:
            why = f"node {name} could not be read: {error}"
            if self.waits:
                return deny(why, code=503, reason="ServiceUnavailable")
            return allow(warnings=(why,), audit={"failed-open": why})
        if self.waits and (why := what_is_missing(node, settings)):
            return deny(
                f"{why}, and pods of namespace {request.namespace} wait for it ({NODE_ADDRESS}={WAIT})"
            )
        return _with_address(binding.metadata, node.anycast_ip)


def what_is_missing(node: AddressedNode, settings: AnycastIPSettings) -> str:
    """Why a pod that waits may not run on *node* now; empty when it may."""
    name, address = node.metadata.name, node.anycast_ip
    shown = [each.address for each in node.status.addresses if each.type == EXTERNAL]
    if not address and not wanted(node, settings):
        labels = ", ".join(f"{key}={value}" for key, value in settings.node_labels.items())
        return f"node {name} never gets an anycast IP: give the pod a nodeSelector for {labels}"
    if not address:
        return f"node {name} has no anycast IP yet"
    if address not in shown:
        return f"node {name} has anycast IP {address}, but {', '.join(shown) or 'none'} as {EXTERNAL} in its status"
    return ""


def _with_address(binding: ObjectMeta, address: str) -> Decision:
    """Empty if there is none: what a template or a backup gave the pod is another node's."""
    before = {"annotations": binding.annotations} if binding.annotations else {}  # else it may lack the field
    after = {"annotations": {**binding.annotations, NODE_ADDRESS: address}}
    return change({"metadata": before}, {"metadata": after}, audit={"address": address or "none"})
