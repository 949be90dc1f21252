"""A node that needs an anycast IP is never seen without its taint before that IP is bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kube.super_nodes import is_super
from kube.types import Node, Taint
from settings import AnycastIPSettings
from webhook.admission import Decision, Request, allow, change, decoded

NAME = "anycast_ip"
PATH = "/mutate/nodes/anycast-ip"

TAINT = Taint(key="tke.cloud.tencent.com/no-aia-ip", value="true", effect="NoSchedule")
ADDRESS_ID = "tke.cloud.tencent.com/anycast-ip-id"
ADDRESS = "tke.cloud.tencent.com/anycast-ip-address"
BOUND = "drawbridge.io/anycast-ip-bound"
"""The controller's proof that it saw the address bound: the uid of the node it was seen on, and the address's id."""


class Gate:
    """The feature as the admission server calls it."""

    name, path = NAME, PATH

    def __init__(self, settings: Callable[[], AnycastIPSettings]) -> None:
        self._settings = settings

    def fails_open(self) -> bool:
        """Always: without nodes a cluster dies, and the controller taints what slipped through."""
        return True

    def review(self, request: Request, deadline: float) -> Decision:  # noqa: ARG002 - nothing here waits
        if request.object is None:
            return allow(audit={"skipped": "no node"})
        node = decoded(request.object, Node, "object")
        old = decoded(request.old_object, Node, "oldObject") if request.old_object else None
        if skipped := open_because(old, node, self._settings()):
            return allow(audit={"skipped": skipped})
        before = msgspec.json.decode(request.object)
        return change(before, tainted(before), warnings=warnings_for(old))


def open_because(old: Node | None, node: Node, settings: AnycastIPSettings) -> str:
    """Why *node*, which was *old* until now, needs no taint from admission, or nothing when it does."""
    if not settings.enabled:
        return "anycast ip is disabled"
    if not wanted(node, settings):
        return "not selected"
    if is_tainted(node):
        return "tainted"
    if is_proven_bound(node):
        return "bound"
    # Of nodes that were open before, the controller knows more: admission closes none that may be at work.
    if old is not None and wanted(old, settings) and not is_tainted(old):
        return "open before"
    return ""


def warnings_for(old: Node | None) -> tuple[str, ...]:
    """What to tell whoever takes the taint away too early."""
    if old is None or not is_tainted(old):
        return ()
    return (f"the node keeps taint {TAINT.key} until its anycast IP is bound",)


def wanted(node: Node, settings: AnycastIPSettings) -> bool:
    """Whether *node* is to have an address: it carries all labels, and there is an instance behind it."""
    return settings.node_labels.items() <= node.metadata.labels.items() and not is_super(node)


def is_tainted(node: Node) -> bool:
    return any(is_ours(taint) for taint in node.spec.taints)


def is_ours(taint: Taint) -> bool:
    """By key and effect, as Kubernetes tells taints apart."""
    return (taint.key, taint.effect) == (TAINT.key, TAINT.effect)


def is_proven_bound(node: Node) -> bool:
    """A proof is of one Node object: one that was created anew, or restored, has to be seen again."""
    uid, _, address = node.metadata.annotations.get(BOUND, "").partition("/")
    return bool(address) and uid == node.metadata.uid != ""


def proof(node: Node, address_id: str) -> str:
    return f"{node.metadata.uid}/{address_id}"


def tainted(node: Mapping[str, Any]) -> dict[str, Any]:
    """*node*, raw, with our taint after the others."""
    spec = node.get("spec", {})
    taints = [*spec.get("taints", ()), msgspec.to_builtins(TAINT)]
    return {**node, "spec": {**spec, "taints": taints}}
