"""Taint a node in the request that makes it need an anycast IP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from api.anycast_ip import NAME, NONE, PATH, TAINT, is_tainted, proven, wanted
from kube.types import Node, is_super
from settings import AnycastIPSettings
from webhook.admission import Decision, Request, ReviewError, allow, change, decoded, decoded_whole

MOST_TAINTS = 100


class AnycastIPWebhook:
    name, path = NAME, PATH

    def __init__(self, settings: Callable[[], AnycastIPSettings]) -> None:
        self._settings = settings

    def fails_open(self) -> bool:
        """Always: a cluster dies without nodes, and the controller taints what admission missed."""
        return True

    def review(self, request: Request, deadline: float) -> Decision:  # noqa: ARG002 - no I/O
        if request.object is None:
            return allow(audit={"skipped": "no node"})
        node = decoded(request.object, Node, "object")
        old = decoded(request.old_object, Node, "oldObject") if request.old_object else None
        if skipped := skip_reason(old, node, self._settings()):
            return allow(audit={"skipped": skipped})
        if (count := len(node.spec.taints)) > MOST_TAINTS:
            raise ReviewError(
                f"request.object.spec.taints has {count} entries; at most {MOST_TAINTS} are changed"
            )
        before = decoded_whole(request.object, "object")
        return change(before, _with_taint(before), warnings=_warnings(old))


def skip_reason(old: Node | None, node: Node, settings: AnycastIPSettings) -> str:
    """Why admission does not taint *node*, which was *old* before; "" when it does."""
    if not settings.enabled:
        return "anycast ip is disabled"
    if not wanted(node, settings):
        return "a super node" if is_super(node) else "it has not all labels of nodeLabels"
    if is_tainted(node):
        return "tainted"
    if found := proven(node):
        return "open without an address" if found == NONE else "bound"
    # The controller knows more of a node that was open: it may be in use.
    if old is not None and wanted(old, settings) and not is_tainted(old):
        return "open before"
    return ""


def _warnings(old: Node | None) -> tuple[str, ...]:
    """For a client that removes the taint too early."""
    if old is None or not is_tainted(old):
        return ()
    return (f"the node keeps taint {TAINT.key} until its anycast IP is bound",)


def _with_taint(node: Mapping[str, Any]) -> dict[str, Any]:
    spec = node.get("spec", {})
    return {**node, "spec": {**spec, "taints": [*spec.get("taints", ()), msgspec.to_builtins(TAINT)]}}
