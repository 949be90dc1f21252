"""What decisions rest on and actions change: nodes, address claims, addresses, the cloud, this process's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from api.anycast_ip import is_ours
from cloud.batched import BatchedCloud
from controllers.anycast_ip.claim import instance_of
from controllers.anycast_ip.claim_store import ClaimStore
from controllers.anycast_ip.condition import ReportedNode
from controllers.anycast_ip.egress_store import ProbePods
from controllers.anycast_ip.memory import Memory
from controllers.anycast_ip.resync import Inventory
from kube.client import Client, Resource, Typed
from kube.errors import NotFound
from kube.informer import Informer
from kube.types import Node, Taint
from settings import AnycastIPSettings

NODES = Resource("", "v1", "nodes", namespaced=False)
STRATEGIC = "application/strategic-merge-patch+json"
"""A list of conditions is merged by their types: what others report meanwhile is no conflict."""


class Nodes:
    """Nodes of the informer, and writes to them, *check* before each; *probes* are the pods that check their egress."""

    def __init__(
        self,
        client: Client,
        informer: Informer[ReportedNode],
        probes: ProbePods,
    ) -> None:
        self._client, self._informer, self.probes = client, informer, probes
        self.list = informer.list
        informer.add_index("uid", lambda node: (node.metadata.uid,))
        informer.add_index("instance", lambda node: (instance_of(node),))

    def get(self, uid: str) -> ReportedNode | None:
        return next(iter(self._informer.by_index("uid", uid)), None)

    def on_instance(self, instance: str) -> Sequence[ReportedNode]:
        return self._informer.by_index("instance", instance)

    def read(self, name: str) -> Node | None:
        """From the API server."""
        try:
            return self._client.get(NODES, name, type=Node)
        except NotFound:
            return None

    def read_all(self) -> Sequence[Node]:
        return self._client.list(NODES, type=Node).items

    def write(self, node: Node, annotations: Mapping[str, str | None], *ours: Taint) -> None:
        """Give *node* these annotations, and of our taint *ours*. Conflict when it has changed since it was read."""
        version = node.metadata.resource_version
        metadata = {"resourceVersion": version, "uid": node.metadata.uid, "annotations": annotations}
        patch: dict[str, Any] = {"metadata": metadata}
        taints = (*(taint for taint in node.spec.taints if not is_ours(taint)), *ours)
        if taints != node.spec.taints:
            patch["spec"] = {"taints": msgspec.to_builtins(taints) or None}
        self._informer.wrote(self._client.patch(NODES, node.metadata.name, patch, type=msgspec.Raw))

    def write_condition(self, node: Node, condition: Mapping[str, Any]) -> None:
        """Conflict when another node has the name by now."""
        body = {"metadata": {"uid": node.metadata.uid}, "status": {"conditions": [condition]}}
        resource, name = NODES.sub("status"), node.metadata.name
        self._informer.wrote(self._client.patch(resource, name, Typed(STRATEGIC, body), type=msgspec.Raw))


@dataclass(frozen=True)
class Sources:
    """*settings* brings those of now."""

    nodes: Nodes
    claims: ClaimStore
    inventory: Inventory
    cloud: BatchedCloud
    memory: Memory
    settings: Callable[[], AnycastIPSettings]
