"""Nodes as the informer has them, and our taint and annotations on them, written over no change of another client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from cloud.types import Address
from controllers.anycast_ip.claim import instance_of
from controllers.anycast_ip.planner import bound_annotations
from kube.client import Client, Resource
from kube.errors import NotFound
from kube.informer import Informer
from kube.types import Node, Taint
from webhook.anycast_ip import ADDRESS, ADDRESS_ID, BOUND, TAINT, is_ours

NODES = Resource("", "v1", "nodes", namespaced=False)
UNMARKED: Mapping[str, str | None] = {ADDRESS_ID: None, ADDRESS: None, BOUND: None}


class Nodes:
    """*check* runs before each write; Conflict when the node has changed since it was read."""

    def __init__(self, client: Client, informer: Informer[Node], check: Callable[[], None]) -> None:
        self._client, self._informer, self._check = client, informer, check
        informer.add_index("uid", lambda node: (node.metadata.uid,))
        informer.add_index("instance", lambda node: (instance_of(node),))

    def get(self, uid: str) -> Node | None:
        return next(iter(self._informer.by_index("uid", uid)), None)

    def on_instance(self, instance: str) -> Sequence[Node]:
        return self._informer.by_index("instance", instance)

    def list(self) -> Sequence[Node]:
        return self._informer.list()

    def read(self, name: str) -> Node | None:
        """From the API server."""
        try:
            return self._client.get(NODES, name, type=Node)
        except NotFound:
            return None

    def read_all(self) -> Sequence[Node]:
        return self._client.list(NODES, type=Node).items

    def open(self, node: Node, address: Address) -> None:
        self._write(node, _others(node), bound_annotations(node, address))

    def close(self, node: Node) -> None:
        self._write(node, (*_others(node), TAINT), UNMARKED)

    def strip(self, node: Node) -> None:
        self._write(node, _others(node), UNMARKED)

    def free(self, node: Node) -> None:
        self._write(node, _others(node), {})

    def _write(self, node: Node, taints: tuple[Taint, ...], annotations: Mapping[str, str | None]) -> None:
        self._check()
        version = node.metadata.resource_version
        metadata = {"resourceVersion": version, "uid": node.metadata.uid, "annotations": annotations}
        patch: dict[str, Any] = {"metadata": metadata}
        if taints != node.spec.taints:
            patch["spec"] = {"taints": msgspec.to_builtins(taints) or None}
        self._informer.wrote(self._client.patch(NODES, node.metadata.name, patch, type=msgspec.Raw))


def _others(node: Node) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.spec.taints if not is_ours(taint))
