"""Objects by key, with indexes, and what has changed between two states of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from kube.types import ObjectMeta
from runtime import threading


class Object(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Object)
IndexFunction = Callable[[T], Iterable[str]]
Change = tuple[T | None, T | None]
"""(old, new): old is None for what came, new is None for what is gone."""


class Indexer(Generic[T]):
    """Safe to read while it is written; what it hands out are values."""

    def __init__(self) -> None:
        self._objects: dict[str, T] = {}
        self._functions: dict[str, IndexFunction[T]] = {}
        self._indexes: dict[str, dict[str, set[str]]] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> T | None:
        return self._objects.get(key)

    def list(self) -> Sequence[T]:
        with self._lock:
            return list(self._objects.values())

    def by_index(self, name: str, value: str) -> Sequence[T]:
        """The objects for which the index function *name* yields *value*."""
        with self._lock:
            return [self._objects[key] for key in self._indexes[name].get(value, ())]

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        with self._lock:
            self._functions[name] = function
            self._indexes[name] = {}
            for key, each in self._objects.items():
                self._index(name, key, each)

    def put(self, key: str, new: T) -> Sequence[Change[T]]:
        with self._lock:
            old = self._objects.get(key)
            self._set(key, new)
        return changes(old, new)

    def remove(self, key: str) -> T | None:
        """What stood there, if anything did."""
        with self._lock:
            old = self._objects.get(key)
            self._set(key, None)
        return old

    def replace(self, objects: Mapping[str, T]) -> Sequence[Change[T]]:
        """Hold *objects* and nothing else; what vanished comes first among the changes."""
        with self._lock:
            before = self._objects
            vanished: list[Change[T]] = [(old, None) for key, old in before.items() if key not in objects]
            changed = [change for key, new in objects.items() for change in changes(before.get(key), new)]
            self._objects = dict(objects)
            self._indexes = {name: {} for name in self._functions}
            for key, each in objects.items():
                for name in self._functions:
                    self._index(name, key, each)
        return vanished + changed

    def _set(self, key: str, new: T | None) -> None:
        old = self._objects.pop(key, None)
        for name in self._functions:
            if old is not None:
                self._unindex(name, key, old)
            if new is not None:
                self._index(name, key, new)
        if new is not None:
            self._objects[key] = new

    def _index(self, name: str, key: str, each: T) -> None:
        for value in self._functions[name](each):
            self._indexes[name].setdefault(value, set()).add(key)

    def _unindex(self, name: str, key: str, each: T) -> None:
        index = self._indexes[name]
        for value in set(self._functions[name](each)):
            index[value].discard(key)
            if not index[value]:
                del index[value]


def changes(old: T | None, new: T) -> Sequence[Change[T]]:
    """Nothing when it is the same; gone and come when another object has taken the name meanwhile."""
    if old is None:
        return [(None, new)]
    if old.metadata.uid != new.metadata.uid:
        return [(old, None), (None, new)]
    return [] if old.metadata.resource_version == new.metadata.resource_version else [(old, new)]
