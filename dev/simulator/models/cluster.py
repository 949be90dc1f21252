"""The objects of the API server by owner and by node, without copies: what is read here may not be changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dev.fake_api import FakeAPI
from dev.fake_api.storage import Change, Key
from kube.client import Resource
from kube.resources import DEPLOYMENTS as DEPLOYMENTS
from kube.resources import EVENTS, LEASES, NODES, PODS

Raw = dict[str, Any]
REPLICA_SETS = Resource("apps", "v1", "replicasets")
CONTROLLER_REVISIONS = Resource("apps", "v1", "controllerrevisions")
JOBS = Resource("batch", "v1", "jobs")
NOISE = frozenset({EVENTS, LEASES})
"""Kinds that change often, and that no model reads."""


class Cluster:
    """As shared informers keep it, but never behind: `look` brings it up to the present."""

    def __init__(self, api: FakeAPI) -> None:
        self.api = api
        self._seen = self._version = 0
        self._objects: dict[Resource, dict[tuple[str, str], Raw]] = {}
        self._keys: dict[str, Key] = {}
        self._dependents: dict[str, dict[Key, Raw]] = {}
        self._on_node: dict[str, dict[Key, Raw]] = {}

    def look(self) -> None:
        for change in self.changes(self._seen):
            if change.key[0] in NOISE:
                continue
            if change.old:
                self._drop(change.key, change.old.raw)
            if change.new:
                self._add(change.key, change.new.raw)
            self._version = change.version
        self._seen = self.api.version

    def version(self) -> int:
        """Of the last change that a model reads."""
        self.look()
        return self._version

    def changes(self, since: int) -> Sequence[Change]:
        return self.api.changes(since) if self.api.version > since else ()

    def get(self, key: Key) -> Raw | None:
        return self._objects.get(key[0], {}).get(key[1:])

    def all(self, resource: Resource) -> list[Raw]:
        found = self._objects.get(resource, {})
        return [found[key] for key in sorted(found)]

    def node(self, name: str) -> Raw | None:
        return self.get((NODES, "", name))

    def key_of(self, uid: str) -> Key | None:
        """Of the object that lives; None when it is gone."""
        return self._keys.get(uid)

    def dependents(self, uid: str) -> list[tuple[Key, Raw]]:
        """Whose ownerReferences name it."""
        return sorted(self._dependents.get(uid, {}).items(), key=lambda each: _order(each[0]))

    def controlled(self, uid: str, resource: Resource) -> list[Raw]:
        return [raw for key, raw in self.dependents(uid) if key[0] == resource and controller_of(raw) == uid]

    def pods_on(self, node: str) -> list[Raw]:
        found = self._on_node.get(node, {})
        return [found[key] for key in sorted(found, key=_order)]

    def _add(self, key: Key, raw: Raw) -> None:
        self._objects.setdefault(key[0], {})[key[1:]] = raw
        self._keys[raw["metadata"]["uid"]] = key
        for uid in owners_of(raw):
            self._dependents.setdefault(uid, {})[key] = raw
        if key[0] == PODS and (node := raw["spec"].get("nodeName")):
            self._on_node.setdefault(node, {})[key] = raw

    def _drop(self, key: Key, raw: Raw) -> None:
        self._objects.get(key[0], {}).pop(key[1:], None)
        self._keys.pop(raw["metadata"]["uid"], None)
        for uid in owners_of(raw):
            self._dependents.get(uid, {}).pop(key, None)
        if key[0] == PODS and (node := raw["spec"].get("nodeName")):
            self._on_node.get(node, {}).pop(key, None)


def owners_of(raw: Raw) -> Iterator[str]:
    for each in raw["metadata"].get("ownerReferences") or ():
        yield each["uid"]


def controller_of(raw: Raw) -> str:
    """The uid of the owner that controls it; "" for none."""
    owners = raw["metadata"].get("ownerReferences") or ()
    return next((each["uid"] for each in owners if each.get("controller")), "")


def controlled_by(owner: Raw) -> Raw:
    """The ownerReference to *owner*."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _order(key: Key) -> tuple[str, str, str]:
    return key[0].plural, key[1], key[2]
