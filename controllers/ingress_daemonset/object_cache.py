"""What is known of all objects: by informers, by answers to our own requests, and by reads of unmanaged objects.

What was last read of the nodes' backends at load balancers is known, too, for as long as it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import structlog

from api.ingress_daemonset import INGRESS_DAEMONSETS, NODE_LABEL, REVISION_OF
from api.ingress_daemonset.template import FollowedNode, readable
from api.ingress_daemonset.types import IngressDaemonSet, load_balancers
from controllers.controller import CLOCK, Clock
from controllers.informers import Informers
from controllers.ingress_daemonset.children import Child, Grant, Kind, Target, Workload
from controllers.ingress_daemonset.detachment import BackendsByNode, NodeBackends
from controllers.ingress_daemonset.health_checks import FOR
from controllers.ingress_daemonset.revisions import CONTROLLER_REVISIONS, Revision
from kube.client import Client
from kube.errors import KubeError, NotFound
from kube.informer import Informer
from kube.resources import DAEMON_SETS, DEPLOYMENTS, NODES, Resource, Selection
from kube.types import ObjectMeta, at_any_time
from runtime import threading, time
from settings import CLBSettings

log = structlog.stdlib.get_logger(__name__)

OLD = 30.0
"""Seconds after which it no longer counts."""


class LoadBalancerCache:
    """Safe to use from any thread."""

    def __init__(self, settings: Callable[[], CLBSettings], clock: Clock = CLOCK) -> None:
        self.settings, self.clock = settings, clock
        self._known: dict[str, tuple[Mapping[str, NodeBackends], float]] = {}
        """By load balancer and node, since a time on the clock."""
        self._lock = threading.Lock()

    def put(self, load_balancer: str, nodes: Mapping[str, NodeBackends]) -> bool:
        """Whether it differs from what was known."""
        before = self.nodes(load_balancer)
        with self._lock:
            self._known[load_balancer] = nodes, self.clock.monotonic()
        return before != nodes

    def nodes(self, load_balancer: str) -> Mapping[str, NodeBackends]:
        """What still counts."""
        with self._lock:
            nodes, at = self._known.get(load_balancer, ({}, 0.0))
        return nodes if self.clock.monotonic() - at <= OLD else {}

    def of(self, resource: IngressDaemonSet, names: Iterable[str]) -> BackendsByNode:
        """For those of *names* of which something is known; a load balancer that is not allowed is so for all."""
        namespace, clb = resource.metadata.namespace, self.settings()
        found: dict[str, tuple[NodeBackends, ...]] = {}
        for each in load_balancers(resource):
            nodes = self.nodes(each)
            if refusal := clb.refusal(each, namespace):
                nodes = dict.fromkeys(names, NodeBackends(each, error=f"is not used: {refusal}"))
            for name, backends in nodes.items():
                found[name] = (*found.get(name, ()), backends)
        return found


UNLABELLED_PERIOD = 15.0
"""Seconds after which an object that no informer follows is read again."""
CALL_TIMEOUT = 4.0
"""Seconds for a read: a reconcile waits for it."""
RESOURCES: Mapping[Kind, Resource] = {
    "IngressDaemonSet": INGRESS_DAEMONSETS,
    "Node": NODES,
    "Deployment": DEPLOYMENTS,
    "DaemonSet": DAEMON_SETS,
    "RoleBinding": Resource("rbac.authorization.k8s.io", "v1", "rolebindings"),
    "ControllerRevision": CONTROLLER_REVISIONS,
}
LABELS: Mapping[Kind, str] = {
    "Deployment": NODE_LABEL,
    "DaemonSet": FOR,
    "RoleBinding": FOR,
    "ControllerRevision": REVISION_OF,
}
"""By which children are followed; kinds that are not named here are followed completely."""
NAMESPACE = "namespace"
"""The index of children by their namespace."""
DECODERS: Mapping[Kind, Callable[[msgspec.Raw], Any]] = {
    "IngressDaemonSet": lambda raw: readable(msgspec.json.decode(raw)),
    "Node": msgspec.json.Decoder(FollowedNode).decode,
    "Deployment": msgspec.json.Decoder(Workload).decode,
    "DaemonSet": msgspec.json.Decoder(Workload).decode,
    "RoleBinding": msgspec.json.Decoder(Grant).decode,
    "ControllerRevision": msgspec.json.Decoder(Revision).decode,
}
T = TypeVar("T")


def informers_of(informers: Informers) -> dict[Kind, Informer[Any]]:
    return {
        kind: informers.of(
            resource, Child, Selection(label_selector=LABELS.get(kind, "")), decode=DECODERS[kind]
        )
        for kind, resource in RESOURCES.items()
    }


class ObjectCache:
    """Safe to use from any thread.

    No informer follows an object without the label of its kind, such as one that others created under a name of ours.
    It is known as it was last read, at a time on *clock*.
    """

    def __init__(
        self,
        client: Client,
        informers: Mapping[Kind, Informer[Any]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client, self.informers, self._clock = client, informers, clock
        self._unlabelled: dict[Target, tuple[Any, float]] = {}
        self._lock = threading.Lock()
        self._handlers: dict[Kind, list[Callable[[Any | None, Any | None], None]]] = {}
        for kind in LABELS:
            informers[kind].add_index(NAMESPACE, lambda held: [held.metadata.namespace])

    def on_change(self, kind: Kind, handler: Callable[[Any | None, Any | None], None]) -> None:
        """Call *handler* with (old, new) of each change, also of those that we write: informers leave these out."""
        self._handlers.setdefault(kind, []).append(handler)
        self.informers[kind].on_change(handler)

    def get(self, target: Target) -> Any | None:
        return self.informers[target.kind].get(target.key) or self._unlabelled.get(target, (None,))[0]

    def list(self, kind: Kind) -> Sequence[Any]:
        return self.informers[kind].list()

    def in_namespace(self, kind: Kind, namespace: str) -> Sequence[Any]:
        with self._lock:
            known = [*self._unlabelled.items()]
        others = [held for target, (held, _) in known if (target.kind, target.namespace) == (kind, namespace)]
        return [*others, *self.informers[kind].by_index(NAMESPACE, namespace)]

    def read_unlabelled(self) -> float | None:
        """Read again what no informer follows, when that is due; seconds until the next time."""
        now, due = self._clock(), list[Target]()
        with self._lock:
            for target, (held, at) in [*self._unlabelled.items()]:
                if self.informers[target.kind].get(target.key):
                    del self._unlabelled[target]
                elif now - at >= UNLABELLED_PERIOD:
                    self._unlabelled[target] = held, now
                    due.append(target)
            known = [at for _, at in self._unlabelled.values()]
        for target in due:
            try:
                self.read(target)
            except KubeError as error:
                log.warning("object not read", kind=target.kind, name=target.name, error=str(error))
        return min(known) + UNLABELLED_PERIOD - now if known else None

    def take_in(self, target: Target, raw: msgspec.Raw) -> ObjectMeta:
        """Remember the API server's answer; its metadata."""
        label, held = LABELS.get(target.kind), at_any_time(DECODERS[target.kind], raw)
        before = self.get(target)
        with self._lock:
            self._unlabelled.pop(target, None)
            if label is None or label in held.metadata.labels:
                self.informers[target.kind].wrote(raw)
            else:
                self._unlabelled[target] = (held, self._clock())
        self._changed(target, before)
        metadata: ObjectMeta = held.metadata
        return metadata

    def forget(self, target: Target, uid: str) -> None:
        """The API server says that the object of this *uid* is gone."""
        before = self.get(target)
        with self._lock:
            self._unlabelled.pop(target, None)
        self.informers[target.kind].forget(target.key, uid)
        self._changed(target, before)

    def _changed(self, target: Target, before: Any | None) -> None:
        for handler in self._handlers.get(target.kind, ()):
            handler(before, self.get(target))

    def read(self, target: Target) -> None:
        """Ask the API server. KubeError: what is known stays."""
        known = self.get(target)
        try:
            self.take_in(target, self.fetch(target, msgspec.Raw))
        except NotFound:
            if known is not None:
                self.forget(target, known.metadata.uid)

    def fetch(self, target: Target, type: type[T]) -> T:  # noqa: A002 - as the client
        namespace = target.namespace or None
        return self.client.get(
            RESOURCES[target.kind], target.name, namespace, type=type, timeout=CALL_TIMEOUT
        )
