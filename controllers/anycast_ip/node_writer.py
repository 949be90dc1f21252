"""Our marks on nodes: the taint and the annotations, written over nothing that somebody else changed meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cloud.types import Address
from controllers.anycast_ip.planner import marks
from kube.client import Client, Resource
from kube.errors import NotFound
from kube.informer import Informer
from kube.types import Node, Taint
from webhook.anycast_ip import ADDRESS, ADDRESS_ID, BOUND, TAINT, is_ours

NODES = Resource("", "v1", "nodes", namespaced=False)
UNMARKED: Mapping[str, str | None] = {ADDRESS_ID: None, ADDRESS: None, BOUND: None}


class Nodes:
    """*check* runs before each write; Conflict when the node has changed since it was read."""

    def __init__(self, client: Client, followed: Informer[Node], check: Callable[[], None]) -> None:
        self._client, self._followed, self._check = client, followed, check
        self._written: dict[str, tuple[str, Node]] = {}
        self._writing = threading.Lock()

    def by_uid(self) -> dict[str, Node]:
        """As they were when they were last heard of, with what we have written since."""
        with self._writing:
            nodes = {each.metadata.uid: each for each in self._followed.list()}
            for uid, (version, written) in list(self._written.items()):
                if uid in nodes and nodes[uid].metadata.resource_version == version:
                    nodes[uid] = written
                else:
                    del self._written[uid]
            return nodes

    def now(self, name: str) -> Node | None:
        """By the API server's own word, not by what was heard."""
        try:
            return self._client.get(NODES, name, type=Node)
        except NotFound:
            return None

    def uids_now(self) -> dict[str, Node]:
        """All, read anew."""
        return {each.metadata.uid: each for each in self._client.list(NODES, type=Node).items}

    def open(self, node: Node, address: Address) -> None:
        self._write(node, _others(node), marks(node, address))

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
        heard = self._followed.get(node.metadata.name)
        written = self._client.patch(NODES, node.metadata.name, patch, type=Node)
        with self._writing:
            # What was in view before is to be overlooked until the change, or a later one, is heard of.
            self._written[node.metadata.uid] = (
                heard.metadata.resource_version if heard else version,
                written,
            )


def _others(node: Node) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.spec.taints if not is_ours(taint))
