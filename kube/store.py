"""State in ConfigMaps that one process writes: each change is guarded by the version it has read or written last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from kube.client import Client
from kube.errors import AlreadyExists, Conflict, NotFound
from kube.resources import CONFIG_MAPS
from kube.types import Object, ObjectMeta

T = TypeVar("T", bound=Object)

log = structlog.stdlib.get_logger(__name__)


class NotOurs(ValueError):
    """Another client has made a ConfigMap of this name."""


class Store(Generic[T]):
    """ConfigMaps of *namespace*, read as *type*. Safe to share between threads, one for each name.

    Conflict or AlreadyExists when one is not as it is known, because an answer was lost or another client wrote: the
    next change replaces what is there now.
    """

    def __init__(self, client: Client, namespace: str, type: type[T], timeout: float | None = None) -> None:  # noqa: A002
        self._client, self._type, self._timeout = client, type, timeout
        self.namespace, self.known = namespace, dict[str, ObjectMeta]()

    def list(self, label_selector: str) -> Sequence[T]:
        return [self._note(each) for each in self.peek(label_selector)]

    def peek(self, label_selector: str) -> Sequence[T]:
        """Without knowing them from then on: what another client wrote is still a conflict."""
        return self._client.list(
            CONFIG_MAPS, self.namespace, type=self._type, label_selector=label_selector, timeout=self._timeout
        ).items

    def read(self, name: str, label: str = "") -> T | None:
        """None when there is none; NotOurs when it has no *label*."""
        self.known.pop(name, None)
        found = self._client.find(CONFIG_MAPS, name, self.namespace, type=self._type, timeout=self._timeout)
        if found is None:
            return None
        if label and label not in found.metadata.labels:
            way_out = "rename or delete it, give another name, or label it to have it overwritten"
            raise NotOurs(f"ConfigMap {self.namespace}/{name} has no label {label}: {way_out}")
        return self._note(found)

    def write(self, name: str, labels: Mapping[str, str], **content: object) -> T:
        """Durable when it returns; *content* is ``data`` or ``binaryData``. What was deleted is created again."""
        metadata: dict[str, Any] = {"name": name, "labels": labels}
        write = partial(self._client.create, CONFIG_MAPS)
        if known := self.known.get(name):  # what others have added to its metadata stays
            metadata = msgspec.to_builtins(known) | {"labels": {**known.labels, **labels}}
            write = partial(self._client.replace, CONFIG_MAPS, name)
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **content}
        try:
            return self._note(write(body, self.namespace, type=self._type, timeout=self._timeout))
        except (AlreadyExists, Conflict, NotFound):
            if self.read(name) or not known:
                raise
            log.warning("stored state was deleted by another client", name=name)
            return self.write(name, labels, **content)

    def delete(self, name: str) -> None:
        known = self.known.get(name)
        guard = {"resourceVersion": known.resource_version} if known else None
        try:
            self._client.delete(CONFIG_MAPS, name, self.namespace, preconditions=guard, timeout=self._timeout)
        except NotFound:
            pass
        except Conflict:
            self.read(name)
            raise
        self.known.pop(name, None)

    def _note(self, found: T) -> T:
        self.known[found.metadata.name] = found.metadata
        return found
