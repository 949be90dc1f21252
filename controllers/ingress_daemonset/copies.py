"""Copies of all that the leader decides on, complete before it begins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import structlog

from controllers.ingress_daemonset.actions import Kind
from controllers.ingress_daemonset.health_check_daemonsets import FOR
from controllers.ingress_daemonset.object_cache import Book
from controllers.ingress_daemonset.objects import Grant, Workload
from controllers.workqueue import StaleInformer
from kube.backoff import Backoff
from kube.client import Client, Resource
from kube.errors import KubeError
from kube.indexer import Object
from kube.informer import Informer
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
LONGEST_SILENCE = 300.0
"""Seconds without a LIST or a watch that succeeded; a quiet watch is opened anew after little more than a minute."""
NAMESPACE = "namespace"
NAMESPACED: tuple[Kind, ...] = ("Deployment", "DaemonSet", "Role", "RoleBinding")
PAUSES = Backoff(base=0.5, cap=15.0)

T = TypeVar("T", bound=Object)

log = structlog.stdlib.get_logger(__name__)


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

    def check(self) -> None:
        """Raise StaleInformer when one of them has been silent too long."""
        silence, kind = max((each.silence, kind) for kind, each in self.followed.items())
        if silence > LONGEST_SILENCE:
            raise StaleInformer(f"nothing was heard of {RESOURCES[kind].plural} for {silence:.0f} s")

    def wait_synced(self, stop: threading.Event) -> None:
        """Return when all are complete, or when *stop* is set."""
        for each in self.followed.values():
            while not each.wait_synced(0.1) and not stop.is_set():
                self.check()


@contextmanager
def followed(client: Client, stop: threading.Event) -> Iterator[Copies]:
    """Complete copies, unless *stop* is set; read from the API server now, not before."""
    following: dict[Kind, Informer[Any]] = {}

    def book(kind: Kind, decode: Callable[[msgspec.Raw], T], type: type[T], label: str = "") -> Book[T]:  # noqa: A002
        informer = Informer(client, RESOURCES[kind], type, decode=decode, label_selector=label)
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
    copies = Copies(books, following)
    with ExitStack() as closing:
        for informer in following.values():
            closing.callback(informer.stop)
            informer.start()
        copies.wait_synced(stop)
        yield copies


def _resource(raw: msgspec.Raw) -> IngressDaemonSet:
    return readable(msgspec.json.decode(raw))


def wait_until_served(client: Client, stop: threading.Event) -> bool:
    """Whether the API server knows IngressDaemonSets by now; else *stop* was set before."""
    failures = 0
    while not stop.is_set():
        try:
            if client.serves(RESOURCES["IngressDaemonSet"]):
                return True
            trouble = "the API server does not know the kind; its definition is a part of the chart"
        except KubeError as error:
            trouble = str(error)
        failures += 1
        log.warning("waiting for IngressDaemonSets", error=trouble)
        stop.wait(PAUSES.delay(failures))
    return False
