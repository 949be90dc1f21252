"""Read the pods that elasticity has to do with: of all others not even their specs leave the API server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from api.elasticity import PLACEMENT
from cli.cluster import Cluster
from cli.elasticity.placements import Pod, PodSpec
from kube.errors import Forbidden
from kube.resources import NAMESPACES, PODS, Selection
from kube.types import Namespace, ObjectMeta

MARK = f'"{PLACEMENT}"'.encode()
"""What is in the metadata of each pod that has a placement, as JSON."""
PENDING = "status.phase=Pending"
NO_NODE = "<none>"


class _Listed(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class _Object(msgspec.Struct):
    metadata: ObjectMeta


def pods_and_super_nodes(cluster: Cluster, namespace: str | None) -> tuple[list[Pod], set[str]]:
    """Pods that are pending, placed or on super nodes, of *namespace* or all; and the super nodes. KubeError."""
    found = cluster.read_all(
        {
            "super nodes": cluster.super_nodes,
            "namespaces": partial(_namespaces, cluster, namespace),
            "pending": partial(cluster.cached, PODS, Pod, Selection(namespace, field_selector=PENDING)),
        }
    )
    names, super_nodes = found["namespaces"], found["super nodes"]
    reads: dict[str, Callable[[], Any]] = {
        f"placed in {each}": partial(_placed, cluster, each) for each in names
    }
    reads |= {f"on {each}": partial(_on_node, cluster, namespace, each) for each in super_nodes}
    listed = cluster.read_all(reads)
    known = {each.metadata.uid: each for each in found["pending"]}
    known |= {each.metadata.uid: each for name in super_nodes for each in listed[f"on {name}"]}
    others = [each for name in names for each in listed[f"placed in {name}"] if each.uid not in known]
    return [*known.values(), *_on_local_nodes(cluster, others)], {*super_nodes}


def _namespaces(cluster: Cluster, namespace: str | None) -> Sequence[str | None]:
    """Each is listed alone, since the API server makes several lists at a time; without permission all are one."""
    if namespace:
        return [namespace]
    try:
        return [each.metadata.name for each in cluster.cached(NAMESPACES, Namespace)]
    except Forbidden:
        return [None]


def _placed(cluster: Cluster, namespace: str | None) -> list[ObjectMeta]:
    return _metadata(cluster.without_specs(PODS, Selection(namespace)), MARK)


def _on_node(cluster: Cluster, namespace: str | None, node: str) -> list[Pod]:
    selection = Selection(namespace, field_selector=f"spec.nodeName={node}")
    return [Pod(each, PodSpec(node)) for each in _metadata(cluster.without_specs(PODS, selection))]


def _metadata(content: bytes, mark: bytes = b"") -> list[ObjectMeta]:
    """Of the objects in *content* that have *mark* in them: few are decoded."""
    if mark not in content:
        return []
    items = msgspec.json.decode(content, type=_Listed).items or ()
    return [msgspec.json.decode(each, type=_Object).metadata for each in items if mark in bytes(each)]


def _on_local_nodes(cluster: Cluster, placed: Iterable[ObjectMeta]) -> list[Pod]:
    """With their nodes; without those that have gone since."""
    by_namespace: dict[str, list[ObjectMeta]] = {}
    for each in placed:
        by_namespace.setdefault(each.namespace, []).append(each)
    nodes = cluster.read_all(
        {name: partial(cluster.column, PODS, "Node", Selection(name)) for name in by_namespace}
    )
    found = [
        Pod(each, PodSpec(nodes[name][each.name]))
        for name, held in by_namespace.items()
        for each in held
        if each.name in nodes[name]
    ]
    return [replace(each, spec=PodSpec()) if each.spec.node_name == NO_NODE else each for each in found]
