"""Every call ends within its timeout, with a value or with a KubeError.

Bodies go out as dicts or msgspec structs and come back as what ``type`` names: ``dict``, a struct of the fields that
are read, ``msgspec.Raw``, or ``bytes`` for the body as it came. Nothing is retried here: callers have deadlines.
"""

# ruff: noqa: A002 (``get(PODS, name, type=Pod)`` reads best)

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from typing import Any, Generic
from urllib.parse import urlencode

import msgspec
from typing_extensions import TypedDict, TypeVar, Unpack

from kube.connection import Connection, connect, in_cluster, of_pod
from kube.errors import Expired, NotFound
from kube.resources import ALL, PODS, Selection
from kube.resources import Resource as Resource
from kube.transport import JSON, LineStream, Transport
from kube.types import Completed

T = TypeVar("T", default=dict[str, Any])
AS_DICT: Any = dict


class ListMeta(msgspec.Struct, metaclass=Completed, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int = 0
    """Where a limit leaves some for the next page."""


class Page(msgspec.Struct, Generic[T]):
    """One answer to a LIST; Go writes an empty one's items as null."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[T] | None = None


class Listing(msgspec.Struct, Generic[T]):
    """All objects as they were at *resource_version*."""

    items: list[T]
    resource_version: str


class Options(TypedDict, Generic[T], total=False):
    """How a call answers: as a value of *type*, by default a dict, in the form *accept*, within *timeout* seconds.

    Servers that know no form but JSON answer in that.
    """

    type: type[T]
    timeout: float | None
    accept: str


class Client:
    """Safe to share between threads; *timeout* in seconds is for calls that do not bring their own."""

    def __init__(self, connection: Connection, *, timeout: float = 10.0) -> None:
        self._transport, self._timeout = Transport(connection), timeout
        self._check: Callable[[], None] = lambda: None
        self._longest_write = math.inf

    @classmethod
    def from_environment(cls, *, timeout: float = 10.0) -> Client:
        """By the ServiceAccount in a pod, else by KUBECONFIG or ``~/.kube/config``; NotConfigured."""
        kubeconfig = os.environ.get("KUBECONFIG") or "~/.kube/config"
        return cls(of_pod() if in_cluster() else connect(kubeconfig), timeout=timeout)

    def fenced(self, check: Callable[[], None], within: float) -> Client:
        """The same for a leader: *check* runs before each write, and may raise; no write takes longer than *within*.

        That is in seconds, whatever timeout a caller names.
        """
        fenced = copy(self)
        fenced._check, fenced._longest_write = check, within
        return fenced

    def close(self) -> None:
        self._transport.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, object] | None = None,
        **options: Unpack[Options[T]],
    ) -> T:
        """Any request; *timeout* covers the whole of it, from connecting to the last byte.

        The body of a PATCH is a merge patch, or a JSON patch when it is a list; Typed for another type.
        """
        timeout, whole = options.get("timeout"), path + _encoded(query)
        limit = self._timeout if timeout is None else timeout
        if method != "GET":
            self._check()
            limit = min(limit, self._longest_write)
        wanted: type[T] = options.get("type", AS_DICT)
        accept = options.get("accept", JSON)
        return self._transport.request(method, whole, body=body, type=wanted, timeout=limit, accept=accept)

    def get(
        self, resource: Resource, name: str, namespace: str | None = None, **options: Unpack[Options[T]]
    ) -> T:
        return self.request("GET", resource.path(namespace, name), **options)

    def find(
        self, resource: Resource, name: str, namespace: str | None = None, **options: Unpack[Options[T]]
    ) -> T | None:
        """As `get`; None when there is no such object."""
        try:
            return self.get(resource, name, namespace, **options)
        except NotFound:
            return None

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        type: type[T] = AS_DICT,
        label_selector: str = "",
        field_selector: str = "",
        timeout: float | None = None,
    ) -> Listing[T]:
        """All of them, read in pages; *timeout* is for each page."""
        selection = Selection(namespace, label_selector, field_selector)
        try:
            return _whole(self.list_pages(resource, selection, type=type, timeout=timeout))
        except Expired:  # then all at once, as client-go does
            return _whole(self.list_pages(resource, selection, type=type, page_size=0, timeout=timeout))

    def list_pages(
        self,
        resource: Resource,
        selection: Selection = ALL,
        *,
        type: type[T] = AS_DICT,
        page_size: int = 500,
        timeout: float | Callable[[], float] | None = None,
    ) -> Iterator[Page[T]]:
        """Each page of *page_size* (0: all) when it is wanted; Expired after the server's memory of 5 minutes.

        *timeout* is for each page; a function is called for each.
        """
        path = resource.path(selection.namespace)
        query = selection.query | ({"limit": page_size} if page_size else {})
        while True:
            limit = timeout() if callable(timeout) else timeout
            page: Page[T] = self.request("GET", path, query=query, type=Page[type], timeout=limit)  # type: ignore[valid-type]
            yield page
            if not page.metadata.continue_:
                return
            query["continue"] = page.metadata.continue_

    def create(
        self, resource: Resource, body: object, namespace: str | None = None, **options: Unpack[Options[T]]
    ) -> T:
        return self.request("POST", resource.path(namespace), body=body, **options)

    def replace(
        self,
        resource: Resource,
        name: str,
        body: object,
        namespace: str | None = None,
        **options: Unpack[Options[T]],
    ) -> T:
        """PUT; *body* carries ``metadata.resourceVersion``; Conflict when it is not the current one."""
        return self.request("PUT", resource.path(namespace, name), body=body, **options)

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: object,
        namespace: str | None = None,
        **options: Unpack[Options[T]],
    ) -> T:
        """A merge patch, or a JSON patch when *patch* is a list."""
        return self.request("PATCH", resource.path(namespace, name), body=patch, **options)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        preconditions: Mapping[str, str | None] | None = None,
        grace_seconds: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Conflict when the object no longer meets *preconditions*: ``uid``, ``resourceVersion``."""
        options = {"preconditions": preconditions, "gracePeriodSeconds": grace_seconds}
        body = {name: value for name, value in options.items() if value is not None}
        path = resource.path(namespace, name)
        self.request("DELETE", path, body=body or None, type=bytes, timeout=timeout)

    def evict(
        self, name: str, namespace: str, *, preconditions: Mapping[str, str], timeout: float | None = None
    ) -> None:
        """TooManyRequests while a PodDisruptionBudget does not allow it; Conflict as in `delete`."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": preconditions},
        }
        path = PODS.sub("eviction").path(namespace, name)
        self.request("POST", path, body=body, type=bytes, timeout=timeout)

    def watch(
        self,
        resource: Resource,
        selection: Selection = ALL,
        *,
        resource_version: str,
        duration: int,
        read_timeout: float,
    ) -> LineStream:
        """Events, a line each, for *duration* seconds; silence over *read_timeout* seconds is Unreachable."""
        query = selection.query | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": duration,
        }
        path = resource.path(selection.namespace) + _encoded(query)
        return self._transport.open(path, timeout=self._timeout, read_timeout=read_timeout)

    def serves(self, resource: Resource, *, timeout: float | None = None) -> bool:
        """Whether discovery of its group and version lists it."""
        try:
            found = self.request("GET", resource.root, timeout=timeout)
        except NotFound:
            return False
        return any(each["name"] == resource.plural for each in found["resources"] or ())


def _whole(pages: Iterable[Page[T]]) -> Listing[T]:
    items: list[T] = []
    version = ""
    for page in pages:
        items += page.items or ()
        version = page.metadata.resource_version
    return Listing(items, version)


def _encoded(query: Mapping[str, object] | None) -> str:
    return "?" + urlencode(query) if query else ""
