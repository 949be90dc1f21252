"""As much of an API server as controllers need: objects with resourceVersions, LIST, WATCH and discovery."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any

from tests.misbehaving_server import Answer, Asked, Handler, answers, refuses

PATH = re.compile(r"(/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+))?")

Key = tuple[str, str, str]
"""Collection, namespace ("" for none) and name."""


class Api:
    """Answers a server of misbehaving_server; *fault* may answer instead, selectors are not looked at.

    IPReservations are served in the groups *calico* alone; all other groups are.
    """

    def __init__(self, *calico: str) -> None:
        self.calico = calico
        self.objects: dict[Key, dict[str, Any]] = {}
        self.fault: Callable[[Asked], Answer | None] = lambda asked: None
        self._events: list[tuple[str, str, dict[str, Any]]] = []
        self._changed = threading.Condition()

    def __call__(self, asked: Asked) -> Answer:
        return self.fault(asked) or self.answer(asked)

    def answer(self, asked: Asked) -> Answer:
        with self._changed:
            if "calico" in asked.path and not any(f"/apis/{group}" in asked.path for group in self.calico):
                return refuses(404, "NotFound", "404 page not found")
            if (found := PATH.fullmatch(asked.path)) is None:
                return answers({"resources": [{"name": "ipreservations"}]})
            root, namespace, plural, name = found.groups()
            return self._answer(asked, (f"{root}/{plural}", namespace or "", name or ""))

    def put(self, collection: str, raw: dict[str, Any]) -> None:
        """Place *raw* as somebody else would."""
        with self._changed:
            meta = raw["metadata"]
            self._store((collection, meta.get("namespace", ""), meta["name"]), raw)

    def remove(self, collection: str, name: str, namespace: str = "") -> None:
        """Take it away as somebody else would."""
        with self._changed:
            self._store((collection, namespace, name), None)

    def in_collection(self, collection: str) -> list[dict[str, Any]]:
        with self._changed:
            return [each for (held_in, *_), each in self.objects.items() if held_in == collection]

    def _answer(self, asked: Asked, key: Key) -> Answer:
        if asked.watches:
            return self._watch(key[0], int(asked.query["resourceVersion"]))
        if asked.method == "POST":
            return self._create((*key[:2], asked.body["metadata"]["name"]), asked.body)
        if not key[2]:
            return answers({"metadata": {"resourceVersion": self._version}, "items": self._items(key[0])})
        if key not in self.objects:
            return refuses(404, "NotFound", f"{key[2]} not found")
        return answers(self.objects[key]) if asked.method == "GET" else self._change(asked, key)

    def _create(self, key: Key, body: dict[str, Any]) -> Answer:
        return refuses(409, "AlreadyExists") if key in self.objects else answers(self._store(key, body), 201)

    def _change(self, asked: Asked, key: Key) -> Answer:
        held, body = self.objects[key], asked.body or {}
        expected = body.get("preconditions" if asked.method == "DELETE" else "metadata", {})
        if expected.get("resourceVersion", held["metadata"]["resourceVersion"]) != _version_of(held):
            return refuses(409, "Conflict", "the object has been modified")
        if asked.method == "DELETE":
            return answers(self._store(key, None))
        return answers(self._store(key, merged(held, body) if asked.method == "PATCH" else body))

    def _store(self, key: Key, new: dict[str, Any] | None) -> dict[str, Any]:
        version = {"resourceVersion": str(len(self._events) + 1)}
        kind = "MODIFIED" if key in self.objects else "ADDED"
        stored = merged(new or self.objects[key], {"metadata": version})
        if new is None:
            kind = "DELETED"
            del self.objects[key]
        else:
            self.objects[key] = stored
        self._events.append((key[0], kind, stored))
        self._changed.notify_all()
        return stored

    def _items(self, collection: str) -> list[dict[str, Any]]:
        return [each for (held_in, *_), each in self.objects.items() if held_in == collection]

    @property
    def _version(self) -> str:
        return str(len(self._events))

    def _watch(self, collection: str, version: int) -> Answer:
        def send(handler: Handler) -> None:
            seen = version
            handler.start_lines()
            while not handler.server.closing.is_set():
                news = self._events_since(seen)
                seen += len(news)
                for held_in, kind, each in news:
                    if held_in == collection:
                        handler.line(json.dumps({"type": kind, "object": each}).encode() + b"\n")
            handler.close_connection = True

        return send

    def _events_since(self, version: int) -> list[tuple[str, str, dict[str, Any]]]:
        """Soon, if there are none."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._events) > version, 0.05)
            return self._events[version:]


def merged(held: Any, change: Any) -> Any:
    """By RFC 7386."""
    if not isinstance(change, dict):
        return change
    base = held if isinstance(held, dict) else {}
    values = base | {name: merged(base.get(name), each) for name, each in change.items()}
    return {name: each for name, each in values.items() if each is not None}


def _version_of(held: dict[str, Any]) -> str:
    return str(held["metadata"]["resourceVersion"])
