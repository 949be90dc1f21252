"""What the rules read of the cluster: with whom an IngressDaemonSet shares a health port, and on which node."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from kube.client import Client, Resource
from kube.errors import Unreachable
from webhook.ingress_daemonset import GROUP, PLURAL, VERSION
from webhook.ingress_daemonset.node_matching import FollowedNode, matches, where_of
from webhook.ingress_daemonset.port_conflicts import Neighbour
from webhook.ingress_daemonset.template import readable
from webhook.ingress_daemonset.types import IngressDaemonSet

INGRESS_DAEMONSETS = Resource(GROUP, VERSION, PLURAL)
NODES = Resource("", "v1", "nodes", namespaced=False)
PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""The taints with which Kubernetes keeps pods off a node until it is ready, or well again."""

Raw = dict[str, Any]
T = TypeVar("T")


class Cluster:
    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock

    def neighbours(self, new: IngressDaemonSet, *, deadline: float) -> list[Neighbour]:
        """Those that bind a health port of *new*: no other one is of interest. Raises KubeError."""
        sharing = [other for other in self._others(new, deadline) if _share_a_port(new, other)]
        shared = self._shared_nodes(new, sharing, deadline) if sharing else {}
        return [
            Neighbour(_key(other), other.spec.health_check_node_ports, shared.get(_key(other), ""))
            for other in sharing
        ]

    def _others(self, new: IngressDaemonSet, deadline: float) -> Iterator[IngressDaemonSet]:
        for raw in self._pages(INGRESS_DAEMONSETS, Raw, deadline):
            other = _readable(raw)
            # One that is being deleted gives its ports back.
            if other and _key(other) != _key(new) and other.metadata.deletion_timestamp is None:
                yield other

    def _shared_nodes(
        self, new: IngressDaemonSet, others: list[IngressDaemonSet], deadline: float
    ) -> dict[str, str]:
        """The first node, if there is any, that *new* and each of *others* match, by the other's key."""
        shared: dict[str, str] = {}
        mine, theirs = where_of(new), {_key(other): where_of(other) for other in others}
        for node in map(_when_well, self._pages(NODES, FollowedNode, deadline)):
            if matches(mine, node, runs=False):
                missing = theirs.keys() - shared.keys()
                shared |= {key: node.name for key in missing if matches(theirs[key], node, runs=False)}
            if len(shared) == len(others):
                break
        return shared

    def _pages(self, kind: Resource, type: type[T], deadline: float) -> Iterator[T]:  # noqa: A002 - as Client
        for page in self._client.list_pages(kind, type=type, timeout=lambda: self._left(deadline)):
            yield from page.items or ()

    def _left(self, deadline: float) -> float:
        if (left := deadline - self._clock()) > 0:
            return left
        raise Unreachable("the API server was not fast enough")


def _when_well(node: FollowedNode) -> FollowedNode:
    lasting = tuple(each for each in node.spec.taints if not each.key.startswith(PASSING))
    return replace(node, spec=replace(node.spec, taints=lasting))


def _readable(raw: Raw) -> IngressDaemonSet | None:
    """Nothing of what was stored before the schema or the rules would have refused it."""
    try:
        return readable(raw)
    except msgspec.ValidationError:
        return None


def _share_a_port(one: IngressDaemonSet, other: IngressDaemonSet) -> bool:
    return not {*one.spec.health_check_node_ports}.isdisjoint(other.spec.health_check_node_ports)


def _key(each: IngressDaemonSet) -> str:
    return f"{each.metadata.namespace}/{each.metadata.name}"
