"""An API server as far as the controllers' edges use it: versions, guards, a copy that lags, and faults.

As the real one does, it prunes and defaults workloads, lets admission change them, makes a generation for a change of
a spec (and of a Deployment's annotations), and gives no version to a write that changes nothing.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from controllers.ingress_daemonset.actions import Kind
from controllers.ingress_daemonset.book import Book
from controllers.ingress_daemonset.checkers import FOR
from controllers.ingress_daemonset.copies import NAMESPACE, RESOURCES, Books
from controllers.ingress_daemonset.objects import Grant, Workload
from kube.client import Resource
from kube.errors import AlreadyExists, Conflict, Forbidden, NotFound, Unreachable
from kube.objects import key_of
from tests.ingress_daemonset_world import makes_a_generation, merge, raw_node, raw_resource
from webhook.ingress_daemonset import NODE_LABEL
from webhook.ingress_daemonset.nodes import FollowedNode
from webhook.ingress_daemonset.template import readable

Raw = dict[str, Any]
OURS = "drawbridge"
UNKNOWN = "terminationGracePeriodSecond"
"""Stands for all fields that the API server does not know, and prunes."""
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


class Api:
    """Objects by kind and key; what watches bring waits in *news* until it is delivered."""

    def __init__(self) -> None:
        self.objects: dict[tuple[Kind, str], Raw] = {}
        self.followed: dict[Kind, Followed] = {kind: Followed() for kind in RESOURCES}
        self.news: list[tuple[Kind, str, Any]] = []
        self.writes: list[str] = []
        self.fault: Callable[[str, Kind, str], str] = lambda verb, kind, name: ""
        self.mutate: Callable[[Kind, Raw], None] = lambda kind, raw: None
        self.defaults: Callable[[Raw], None] = default
        self._owners: dict[tuple[Kind, str], dict[tuple[str, ...], str]] = {}
        self._version = 0

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

    def put(self, kind: Kind, raw: Raw) -> Raw:
        """Without admission, as the status is written."""
        self._version += 1
        stored = copy.deepcopy(raw)
        metadata = stored["metadata"]
        metadata.setdefault("uid", f"uid-{self._version}")
        metadata["resourceVersion"] = str(self._version)
        key = key_of(msgspec.convert(stored, Workload).metadata)
        self.objects[kind, key] = stored
        label = LABELS.get(kind)
        is_followed = label is None or label in metadata.get("labels", {})
        self.news.append((kind, key, DECODERS[kind](copy.deepcopy(stored)) if is_followed else None))
        return stored

    def remove(self, kind: Kind, key: str) -> None:
        del self.objects[kind, key]
        self.news.append((kind, key, None))

    def edit(self, kind: Kind, key: str, patch: Raw, manager: str = "kubectl-edit") -> None:
        """As anybody would."""
        old = self.objects[kind, key]
        new = copy.deepcopy(old)
        merge(new, copy.deepcopy(patch))
        self._admit(kind, new)
        if new != old:
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + makes_a_generation(
                kind, old, new
            )
            self._own(kind, key, old, new, manager)
            self.put(kind, new)

    def upgrade(self, defaults: Callable[[Raw], None]) -> None:
        """To a version that has other *defaults*: what is stored is read otherwise, and nothing is written."""
        self.defaults = defaults
        for (kind, _), raw in list(self.objects.items()):
            if kind in WORKLOADS:
                defaults(raw)
                self.put(kind, raw)

    def _admit(self, kind: Kind, raw: Raw) -> None:
        """Change it in place, as mutating admission, pruning and defaulting do."""
        self.mutate(kind, raw)
        if kind in WORKLOADS and "template" in raw.get("spec", {}):
            _prune(raw["spec"])
            self.defaults(raw)

    def _own(self, kind: Kind, key: str, old: Raw, new: Raw, manager: str) -> None:
        """Write down in its metadata who changed what."""
        if kind not in WORKLOADS:
            return
        before, after = (dict(_leaves({**each, "status": {}})) for each in (old, new))
        owners = self._owners.setdefault((kind, key), {})
        for path in before.keys() - after.keys():
            owners.pop(path, None)
        owners |= {path: manager for path, value in after.items() if before.get(path, ...) != value}
        new["metadata"]["managedFields"] = [
            {"manager": each, "operation": "Update", "fieldsV1": _fields(owners, each)}
            for each in sorted(set(owners.values()))
        ]

    def deliver(self) -> None:
        """All that the watches have to tell."""
        news, self.news = self.news, []
        for kind, key, new in news:
            self.followed[kind].bring(key, new)

    # What follows is the client's side.

    def create(self, resource: Resource, body: Any, namespace: str | None, **_: Any) -> msgspec.Raw:
        kind, name = _kind(resource), body["metadata"]["name"]
        return self._write("create", kind, name, lambda: self._create(kind, _key(namespace, name), body))

    def patch(
        self, resource: Resource, name: str, patch: Any, namespace: str | None, **given: Any
    ) -> msgspec.Raw:
        kind = _kind(resource)
        verb = "status" if given.get("subresource") else "change"
        return self._write(verb, kind, name, lambda: self._change(kind, _key(namespace, name), patch))

    def delete(self, resource: Resource, name: str, namespace: str | None, *, uid: str, **_: Any) -> None:
        kind = _kind(resource)
        self._write("delete", kind, name, lambda: self._delete(kind, _key(namespace, name), uid))

    def get(self, resource: Resource, name: str, namespace: str | None, **_: Any) -> msgspec.Raw:
        kind = _kind(resource)
        if fault := self.fault("get", kind, name):
            raise _error(fault)
        return _raw(self._existing(kind, _key(namespace, name)))

    def _write(self, verb: str, kind: Kind, name: str, do: Callable[[], Any]) -> msgspec.Raw:
        fault = self.fault(verb, kind, name)
        if fault and fault not in ("lost", "garbled"):
            raise _error(fault)
        done = do()
        self.writes.append(f"{verb} {kind} {name}")
        if fault == "lost":
            raise Unreachable("no answer came")
        if fault == "garbled":
            return msgspec.Raw(b'{"metadata": []}')
        return _raw(done)

    def _create(self, kind: Kind, key: str, body: Any) -> Raw:
        if (kind, key) in self.objects:
            raise AlreadyExists(409, "AlreadyExists", key)
        new = json.loads(
            json.dumps({**body, "metadata": {"annotations": {}, **body["metadata"], "generation": 1}})
        )
        self._admit(kind, new)
        self._own(kind, key, {}, new, OURS)
        return self.put(kind, new)

    def _change(self, kind: Kind, key: str, patch: Raw) -> Raw:
        held = self._existing(kind, key)["metadata"]
        for guard in ("uid", "resourceVersion"):
            if patch["metadata"].get(guard, held[guard]) != held[guard]:
                raise Conflict(409, "Conflict", key)
        self.edit(kind, key, patch, OURS)
        return self.objects[kind, key]

    def _delete(self, kind: Kind, key: str, uid: str) -> None:
        if self._existing(kind, key)["metadata"]["uid"] != uid:
            raise Conflict(409, "Conflict", key)
        self.remove(kind, key)

    def _existing(self, kind: Kind, key: str) -> Raw:
        if (kind, key) not in self.objects:
            raise NotFound(404, "NotFound", key)
        return self.objects[kind, key]


def default(raw: Raw) -> None:
    """As this version of the API server does."""
    spec = raw["spec"]["template"]["spec"]
    spec.setdefault("restartPolicy", "Always")
    for each in spec.get("containers") or ():
        each.setdefault("imagePullPolicy", "IfNotPresent")


def _prune(part: Any) -> None:
    if isinstance(part, dict):
        part.pop(UNKNOWN, None)
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _prune(each)


def _leaves(part: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """By the keys of FieldsV1."""
    if path == ("f:metadata", "f:managedFields"):
        return
    if isinstance(part, list) and part and all(isinstance(each, dict) and "name" in each for each in part):
        for each in part:
            yield from _leaves(
                each, (*path, f"k:{json.dumps({'name': each['name']}, separators=(',', ':'))}")
            )
    elif isinstance(part, dict) and part:
        for key, value in part.items():
            yield from _leaves(value, (*path, f"f:{key}"))
    else:
        yield path, part


def _fields(owners: dict[tuple[str, ...], str], manager: str) -> Raw:
    fields: Raw = {}
    for path in (path for path, owner in owners.items() if owner == manager):
        level = fields
        for key in path:
            level = level.setdefault(key, {})
    return fields


def with_nodes(*names: str, **spec: Any) -> Api:
    """An IngressDaemonSet edge/web, and nodes."""
    api = Api()
    api.put("IngressDaemonSet", raw_resource(**spec))
    for name in names:
        api.put("Node", raw_node(name))
    api.deliver()
    return api


def _kind(resource: Resource) -> Kind:
    return next(kind for kind, each in RESOURCES.items() if each == resource)


def _key(namespace: str | None, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _error(fault: str) -> Exception:
    if fault == "forbidden":
        return Forbidden(403, "Forbidden", "not you")
    return NotFound(404, "NotFound", "no such thing") if fault == "not found" else Unreachable("timed out")
