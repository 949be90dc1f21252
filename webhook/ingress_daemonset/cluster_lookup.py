"""What the webhooks read of the cluster within a deadline, and the drain requests that they write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from api.ingress_daemonset import DRAIN_REQUESTS, INGRESS_DAEMONSETS
from api.ingress_daemonset.node_matching import FollowedNode, matches, where_of
from api.ingress_daemonset.template import readable
from api.ingress_daemonset.types import IngressDaemonSet
from kube.client import Client
from kube.errors import KubeError, Unreachable
from kube.resources import NODES, PODS, Resource, Selection
from kube.types import Pod, key_of
from runtime import time
from webhook.ingress_daemonset.validate import PortUser

PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Prefixes of the taints that keep pods off a node until it is ready again."""

Raw = dict[str, Any]
T = TypeVar("T")


def seconds_left(deadline: float, clock: Callable[[], float]) -> float:
    """Raises Unreachable after *deadline*."""
    if (left := deadline - clock()) > 0:
        return left
    raise Unreachable("the API server was not fast enough")


class ClusterLookup:
    """All methods raise KubeError."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock

    def port_users(self, new: IngressDaemonSet, deadline: float) -> list[PortUser]:
        """Other IngressDaemonSets that bind a health port of *new*."""
        ports, key = {*new.spec.health_check_node_ports}, key_of(new.metadata)
        # A terminating one gives its ports back.
        sharing = [
            other
            for other in self.ingress_daemonsets(None, deadline=deadline)
            if key_of(other.metadata) != key
            and other.metadata.deletion_timestamp is None
            and not ports.isdisjoint(other.spec.health_check_node_ports)
        ]
        shared = self._shared_nodes(new, sharing, deadline) if sharing else {}
        keys = [(key_of(other.metadata), other.spec.health_check_node_ports) for other in sharing]
        return [PortUser(key, ports, shared.get(key, "")) for key, ports in keys]

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod:
        return self._client.get(PODS, name, namespace, type=Pod, timeout=self._left(deadline))

    def request_drain(self, resource: IngressDaemonSet, node: str, at: str, *, deadline: float) -> None:
        """KubeError, too, when it was not stored: then no eviction could ever pass by its time."""
        metadata = resource.metadata
        written: Raw = self._client.patch(
            INGRESS_DAEMONSETS.sub("status"),
            metadata.name,
            {"metadata": {"uid": metadata.uid}, "status": {DRAIN_REQUESTS: {node: at}}},
            metadata.namespace,
            timeout=self._left(deadline),
        )
        if (written.get("status", {}).get(DRAIN_REQUESTS) or {}).get(node) != at:
            raise KubeError(f"the CRD has no status.{DRAIN_REQUESTS}: upgrade it to that of this version")

    def ingress_daemonsets(self, namespace: str | None, *, deadline: float) -> Iterator[IngressDaemonSet]:
        """Without unreadable ones, which are older than the schema and the rules; controllers ignore them."""
        for raw in self._items(INGRESS_DAEMONSETS, Raw, namespace, deadline):
            self._left(deadline)
            try:
                yield readable(raw)
            except msgspec.ValidationError:
                continue

    def _shared_nodes(
        self, new: IngressDaemonSet, others: list[IngressDaemonSet], deadline: float
    ) -> dict[str, str]:
        """The first node that *new* and each of *others* match, by the other's key."""
        shared: dict[str, str] = {}
        mine, theirs = where_of(new), {key_of(other.metadata): where_of(other) for other in others}
        for node in map(_when_ready, self._items(NODES, FollowedNode, None, deadline)):
            self._left(deadline)
            if matches(mine, node, runs=False):
                missing = theirs.keys() - shared.keys()
                shared |= {key: node.name for key in missing if matches(theirs[key], node, runs=False)}
            if len(shared) == len(others):
                break
        return shared

    def _items(
        self,
        kind: Resource,
        type: type[T],  # noqa: A002 - as the client
        namespace: str | None,
        deadline: float,
    ) -> Iterator[T]:
        selection = Selection(namespace=namespace)
        pages = self._client.list_pages(kind, selection, type=type, timeout=lambda: self._left(deadline))
        for page in pages:
            yield from page.items or ()

    def _left(self, deadline: float) -> float:
        return seconds_left(deadline, self._clock)


def _when_ready(node: FollowedNode) -> FollowedNode:
    lasting = tuple(each for each in node.spec.taints if not each.key.startswith(PASSING))
    return replace(node, spec=replace(node.spec, taints=lasting))
