"""Copies of all that the leader decides on, complete before it begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from controllers.informers import Informers
from controllers.ingress_daemonset.actions import Kind
from controllers.ingress_daemonset.health_check_daemonsets import FOR
from controllers.ingress_daemonset.object_cache import Book
from controllers.ingress_daemonset.objects import Grant, Workload
from kube.backoff import Backoff
from kube.client import Client, Resource
from kube.indexer import Object
from kube.informer import Informer
from kube.list_watch import Selection
from webhook.ingress_daemonset import GROUP, NODE_LABEL, PLURAL, VERSION
from webhook.ingress_daemonset.node_matching import FollowedNode
from webhook.ingress_daemonset.template import readable
from webhook.ingress_daemonset.types import IngressDaemonSet

RBAC = ("rbac.authorization.k8s.io", "v1")
RESOURCES: dict[Kind, Resource] = {
    "IngressDaemonSet": Resource(GROUP, VERSION, PLURAL),
    "Node": Resource("", "v1", "nodes", namespaced=False),
    "Deployment": Resource("apps", "v1", "deployments"),
    "DaemonSet": Resource("apps", "v1", "daemonsets"),
    "Role": Resource(*RBAC, "roles"),
    "RoleBinding": Resource(*RBAC, "rolebindings"),
}
NAMESPACE = "namespace"
NAMESPACED: tuple[Kind, ...] = ("Deployment", "DaemonSet", "Role", "RoleBinding")
PAUSES = Backoff(base=0.5, cap=15.0)

T = TypeVar("T", bound=Object)


@dataclass(frozen=True)
class Books:
    resources: Book[IngressDaemonSet]
    nodes: Book[FollowedNode]
    deployments: Book[Workload]
    daemonsets: Book[Workload]
    roles: Book[Grant]
    bindings: Book[Grant]

    def of(self, kind: Kind) -> Book[Any]:
        by_kind: dict[Kind, Book[Any]] = {
            "IngressDaemonSet": self.resources,
            "Node": self.nodes,
            "Deployment": self.deployments,
            "DaemonSet": self.daemonsets,
            "Role": self.roles,
            "RoleBinding": self.bindings,
        }
        return by_kind[kind]


@dataclass(frozen=True)
class Copies:
    books: Books
    followed: dict[Kind, Informer[Any]]


def copies_of(informers: Informers) -> Copies:
    following: dict[Kind, Informer[Any]] = {}

    def book(kind: Kind, decode: Callable[[msgspec.Raw], T], type: type[T], label: str = "") -> Book[T]:  # noqa: A002
        informer = informers.of(RESOURCES[kind], type, Selection(label_selector=label), decode=decode)
        following[kind] = informer
        return Book(informer, decode, whole=not label)

    workload, grant = msgspec.json.Decoder(Workload).decode, msgspec.json.Decoder(Grant).decode
    books = Books(
        book("IngressDaemonSet", _resource, IngressDaemonSet),
        book("Node", msgspec.json.Decoder(FollowedNode).decode, FollowedNode),
        book("Deployment", workload, Workload, NODE_LABEL),
        book("DaemonSet", workload, Workload, FOR),
        book("Role", grant, Grant, FOR),
        book("RoleBinding", grant, Grant, FOR),
    )
    for kind in NAMESPACED:
        books.of(kind).add_index(NAMESPACE, lambda held: [held.metadata.namespace])
    return Copies(books, following)


def _resource(raw: msgspec.Raw) -> IngressDaemonSet:
    return readable(msgspec.json.decode(raw))


class NotServed(Exception):
    """The API server does not know IngressDaemonSets."""


def require_served(client: Client) -> bool:
    """True, or NotServed."""
    if not client.serves(RESOURCES["IngressDaemonSet"]):
        raise NotServed("the API server does not know the kind; its CRD is a part of the chart")
    return True
