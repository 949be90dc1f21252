"""Objects with their versions, and each change for those who watch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kube.client import Resource
from runtime import threading

Raw = dict[str, Any]
Key = tuple[Resource, str, str]
"""Resource, namespace ("" for none) and name."""


@dataclass(frozen=True)
class Stored:
    """An object as it is at one version; neither form is ever changed."""

    raw: Raw
    encoded: bytes


@dataclass(frozen=True)
class Change:
    """The object of *key* went from *old* to *new* at *version*."""

    version: int
    key: Key
    old: Stored | None
    new: Stored | None


class Storage:
    """As etcd: one counter of versions for all keys. Callers hold *changed*."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.version = 0
        self.compacted = 0
        self.versions: dict[Resource, int] = {}
        """Of the last change of each kind."""
        self._objects: dict[Resource, dict[tuple[str, str], Stored]] = {}
        self._history: list[Change] = []
        self._changes: dict[Resource, list[Change]] = {}

    def get(self, key: Key) -> Stored | None:
        return self._objects.get(key[0], {}).get(key[1:])

    def all(self, resource: Resource, namespace: str = "") -> list[Stored]:
        """In the order of their keys."""
        found = self._objects.get(resource, {})
        return [found[key] for key in sorted(found) if not namespace or key[0] == namespace]

    def put(self, key: Key, raw: Raw) -> Stored:
        """*raw* with the next version."""
        self.version += 1
        raw["metadata"]["resourceVersion"] = str(self.version)
        new = Stored(raw, msgspec.json.encode(raw))
        objects = self._objects.setdefault(key[0], {})
        self._record(key, objects.get(key[1:]), new)
        objects[key[1:]] = new
        return new

    def remove(self, key: Key) -> Stored:
        """Its last state, with the version of its deletion."""
        self.version += 1
        old = self._objects[key[0]].pop(key[1:])
        raw = {**old.raw, "metadata": {**old.raw["metadata"], "resourceVersion": str(self.version)}}
        last = Stored(raw, msgspec.json.encode(raw))
        self._record(key, last, None)
        return last

    def since(self, version: int) -> Iterable[Change]:
        """Everything after *version*, oldest first."""
        # Versions are consecutive, and so the history from 1 on has one entry for each.
        return self._history[max(0, version) :]

    def changes_of(self, resource: Resource, version: int) -> Sequence[Change]:
        """As `since`, of one kind."""
        if self.versions.get(resource, 0) <= version:
            return ()
        found = self._changes[resource]
        return found[bisect_right(found, version, key=lambda each: each.version) :]

    def snapshot(self) -> Mapping[Key, Stored]:
        return {
            (kind, *key): held for kind, objects in self._objects.items() for key, held in objects.items()
        }

    def restore(self, snapshot: Mapping[Key, Stored]) -> None:
        """The objects of then, with new versions and without history: `etcdutl snapshot restore --bump-revision
        --mark-compacted`."""
        now = self.snapshot()
        for key in sorted(now.keys() - snapshot.keys(), key=str):
            self.remove(key)
        for key, held in snapshot.items():
            if now.get(key) is not held:
                self.put(key, {**held.raw, "metadata": {**held.raw["metadata"]}})
        self.forget()

    def forget(self) -> None:
        """Compact: a watch from before the present version has to begin again with a list."""
        self.compacted = self.version

    def _record(self, key: Key, old: Stored | None, new: Stored | None) -> None:
        change = Change(self.version, key, old, new)
        self._history.append(change)
        self._changes.setdefault(key[0], []).append(change)
        self.versions[key[0]] = self.version
        self.changed.notify_all()
