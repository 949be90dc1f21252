"""The fake API server as the leader of IngressDaemonSets sees it: with a copy that lags, and faults."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from controllers.ingress_daemonset.actions import Kind
from controllers.ingress_daemonset.copies import NAMESPACE, RESOURCES, Books
from controllers.ingress_daemonset.health_check_daemonsets import FOR
from controllers.ingress_daemonset.object_cache import Book
from controllers.ingress_daemonset.objects import Grant, Workload
from kube.client import Client
from tests.fake_api import FakeAPI, Reply, Request, connection_to, refusal
from tests.fake_api import Kind as FakeKind
from tests.fake_api.calls import target_of
from tests.fake_api.storage import Change
from tests.ingress_daemonset_world import raw_node, raw_resource
from webhook.ingress_daemonset import NODE_LABEL
from webhook.ingress_daemonset.node_matching import FollowedNode
from webhook.ingress_daemonset.template import readable

Raw = dict[str, Any]
OURS = "drawbridge"
UNKNOWN = "terminationGracePeriodSecond"
"""Stands for all fields that the API server does not know, and prunes."""
VERBS = {"GET": "get", "POST": "create", "PATCH": "change", "PUT": "change", "DELETE": "delete"}
WORKLOADS: tuple[Kind, ...] = ("Deployment", "DaemonSet")
LABELS: dict[Kind, str] = {"Deployment": NODE_LABEL, "DaemonSet": FOR, "Role": FOR, "RoleBinding": FOR}
DECODERS: dict[Kind, Callable[[Raw], Any]] = {
    "IngressDaemonSet": readable,
    "Node": lambda raw: msgspec.convert(raw, FollowedNode),
    "Deployment": lambda raw: msgspec.convert(raw, Workload),
    "DaemonSet": lambda raw: msgspec.convert(raw, Workload),
    "Role": lambda raw: msgspec.convert(raw, Grant),
    "RoleBinding": lambda raw: msgspec.convert(raw, Grant),
}


class Followed:
    """What the watch of a kind has brought by now."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.handlers: list[Callable[[Any, Any], None]] = []

    def get(self, key: str) -> Any:
        return self.objects.get(key)

    def on_change(self, handler: Callable[[Any, Any], None]) -> None:
        for each in self.objects.values():
            handler(None, each)
        self.handlers.append(handler)

    def bring(self, key: str, new: Any) -> None:
        old = self.objects.pop(key, None)
        if new is not None:
            self.objects[key] = new
        if old is not None or new is not None:
            for each in self.handlers:
                each(old, new)


class Api(Client):
    """Objects by kind and key; what watches bring waits until it is delivered.

    *fault* says what becomes of a request, *mutate* is an admission webhook for all kinds.
    """

    def __init__(self) -> None:
        self.defaults: Callable[[Raw], None] = default
        self.fake = FakeAPI(*(self._kind(each) for each in FakeAPI().kinds))
        super().__init__(connection_to(self.fake, OURS))
        self.followed: dict[Kind, Followed] = {kind: Followed() for kind in RESOURCES}
        self.writes: list[str] = []
        self.fault: Callable[[str, Kind, str], str] = lambda verb, kind, name: ""
        self.mutate: Callable[[Kind, Raw], None] = lambda kind, raw: None
        self._delivered, self._after = 0, ""
        self.fake.fault, self.fake.after = self._asked, self._answered
        for kind, resource in RESOURCES.items():
            self.fake.mutate(resource, partial(self._mutated, kind))

    def _kind(self, kind: FakeKind) -> FakeKind:
        """With the defaults of the moment."""
        if kind.kind not in WORKLOADS:
            return kind

        def filled(raw: Raw) -> None:
            kind.default(raw)
            self.defaults(raw)

        return replace(kind, default=filled)

    def _mutated(self, kind: Kind, raw: Raw) -> Raw:
        self.mutate(kind, raw)
        return raw

    def books(self, clock: Callable[[], float]) -> Books:
        def book(kind: Kind) -> Book[Any]:
            decode = DECODERS[kind]
            made: Book[Any] = Book(
                self.followed[kind],  # type: ignore[arg-type]
                lambda raw: decode(msgspec.json.decode(raw)),
                whole=kind not in LABELS,
                clock=clock,
            )
            made.add_index(NAMESPACE, lambda each: [each.metadata.namespace])
            return made

        return Books(*(book(kind) for kind in RESOURCES))

    @property
    def objects(self) -> dict[tuple[Kind, str], Raw]:
        """Copies of all."""
        return {
            (kind, _key_of(raw)): _readable(raw)
            for kind, resource in RESOURCES.items()
            for raw in self.fake.list(resource)
        }

    @property
    def news(self) -> list[Change]:
        """What the watches have not brought yet."""
        followed = set(RESOURCES.values())
        return [each for each in self.fake.changes(self._delivered) if each.key[0] in followed]

    def put(self, kind: Kind, raw: Raw) -> None:
        """Without admission, as the status is written."""
        self.fake.put(RESOURCES[kind], raw)

    def remove(self, kind: Kind, key: str) -> None:
        namespace, name = _split(key)
        self.fake.remove(RESOURCES[kind], name, namespace)

    def edit(self, kind: Kind, key: str, patch: Raw, manager: str = "kubectl-edit") -> None:
        """As another client would."""
        namespace, name = _split(key)
        client = self.fake.client(manager)
        client.patch(RESOURCES[kind], name, patch, namespace)
        if "status" in patch:
            client.patch(RESOURCES[kind].sub("status"), name, {"status": patch["status"]}, namespace)

    def end(self, kind: Kind, key: str) -> None:
        """Delete it as another client would: finalizers hold it."""
        namespace, name = _split(key)
        self.fake.client("kubectl").delete(RESOURCES[kind], name, namespace)

    def upgrade(self, defaults: Callable[[Raw], None]) -> None:
        """To a version that has other *defaults*: what is stored is read otherwise."""
        self.defaults = defaults
        for (kind, _), raw in self.objects.items():
            if kind in WORKLOADS:
                self.put(kind, raw)

    def deliver(self) -> None:
        """All that the watches have to tell."""
        news, self._delivered = self.news, self.fake.version
        kinds = {resource: kind for kind, resource in RESOURCES.items()}
        for each in news:
            kind = kinds[each.key[0]]
            self.followed[kind].bring(_key(each.key[1], each.key[2]), _decoded(kind, each))

    def _asked(self, call: Request) -> Reply | None:
        what = _request(call) if call.headers["user-agent"] == OURS else None
        fault = self.fault(*what) if what else ""
        self._after = fault
        if fault == "forbidden":
            return refusal(403, "Forbidden", "not you")
        if fault == "not found":
            return refusal(404, "NotFound", "no such thing")
        if fault and fault not in ("lost", "garbled"):
            raise ConnectionResetError("timed out")
        return None

    def _answered(self, call: Request, reply: Reply) -> Reply | None:
        what = _request(call) if call.headers["user-agent"] == OURS else None
        if what is None or call.method == "GET" or reply.status >= 400:
            return None
        self.writes.append(" ".join(what))
        if self._after == "lost":
            raise ConnectionResetError("no answer came")
        return Reply(reply.status, b'{"metadata": []}') if self._after == "garbled" else None


def default(raw: Raw) -> None:
    """What this version of the API server fills in, and earlier ones did not: nothing."""


def with_nodes(*names: str, **spec: Any) -> Api:
    """An IngressDaemonSet edge/web, and nodes."""
    api = Api()
    api.put("IngressDaemonSet", raw_resource(**spec))
    for name in names:
        api.put("Node", raw_node(name))
    api.deliver()
    return api


def _request(call: Request) -> tuple[str, Kind, str] | None:
    """Verb, kind and name of a request for one object of ours."""
    target = target_of(call.path)
    if target is None:
        return None
    for kind, resource in RESOURCES.items():
        if (resource.root, resource.plural) == (target.root, target.plural):
            verb = "status" if target.subresource else VERBS[call.method]
            name = call.body["metadata"]["name"] if call.method == "POST" else target.name
            return (verb, kind, name) if name else None
    return None


def _decoded(kind: Kind, change: Change) -> Any:
    """None of what is gone, or not followed."""
    label = LABELS.get(kind)
    if change.new is None or (label and label not in change.new.raw["metadata"].get("labels", {})):
        return None
    return DECODERS[kind](copy.deepcopy(change.new.raw))


def _readable(raw: Raw) -> Raw:
    for name, none in (("annotations", {}), ("finalizers", [])):
        raw["metadata"].setdefault(name, none)
    return raw


def _key_of(raw: Raw) -> str:
    return _key(raw["metadata"].get("namespace"), raw["metadata"]["name"])


def _key(namespace: str | None, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _split(key: str) -> tuple[str, str]:
    namespace, _, name = key.rpartition("/")
    return namespace, name
