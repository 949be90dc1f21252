"""Every call ends within its timeout, with a value or with a KubeError.

Bodies go out as dicts or msgspec structs and come back as what ``type`` names: ``dict``, a struct of the
fields one reads, ``msgspec.Raw``, or ``bytes`` for the body as it came. Nothing is retried here: callers have
deadlines.
"""

# ruff: noqa: A002 (``get(PODS, name, type=Pod)`` reads best)

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Generic
from urllib.parse import urlencode

import msgspec
from typing_extensions import TypeVar

from kube.errors import Expired, NotFound
from kube.resources import Resource as Resource
from kube.rest_config import POOL_SIZE, Connection, connect, in_cluster
from kube.transport import JSON, LineStream, Transport
from kube.types import complete

T = TypeVar("T", default=dict[str, Any])
AS_DICT: Any = dict

MERGE_PATCH = "application/merge-patch+json"


class ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T]):
    """One answer to a LIST; Go writes an empty one's items as null."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[T] | None = None


complete(ListMeta)


class Listing(msgspec.Struct, Generic[T]):
    """All objects as they were at *resource_version*."""

    items: list[T]
    resource_version: str


class Client:
    """Safe to share between threads; *timeout* in seconds is for calls that do not bring their own."""

    def __init__(self, connection: Connection, *, timeout: float = 10.0) -> None:
        self._transport, self._timeout = Transport(connection), timeout

    @classmethod
    def from_environment(cls, *, timeout: float = 10.0) -> Client:
        """By the service account in a pod, else by KUBECONFIG or ``~/.kube/config``; NotConfigured."""
        if in_cluster():
            return cls(connect(None), timeout=timeout)
        return cls(connect(os.environ.get("KUBECONFIG") or "~/.kube/config"), timeout=timeout)

    @classmethod
    def from_kubeconfig(
        cls, path: str | os.PathLike[str], *, timeout: float = 10.0, pool_size: int = POOL_SIZE
    ) -> Client:
        """By the current context of the file at *path*; NotConfigured."""
        return cls(connect(os.fspath(path), pool_size), timeout=timeout)

    def close(self) -> None:
        self._transport.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, object] | None = None,
        content_type: str = JSON,
        type: type[T] = AS_DICT,
        timeout: float | None = None,
    ) -> T:
        """Any request; *timeout* covers the whole of it, from connecting to the last byte."""
        return self._transport.request(
            method,
            path + _encoded(query),
            body=body,
            content_type=content_type,
            type=type,
            timeout=self._timeout if timeout is None else timeout,
        )

    def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        type: type[T] = AS_DICT,
        timeout: float | None = None,
    ) -> T:
        return self.request("GET", resource.path(namespace, name), type=type, timeout=timeout)

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        type: type[T] = AS_DICT,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = 500,
        timeout: float | None = None,
    ) -> Listing[T]:
        """All of them, read in pages of *page_size* (0: at once); *timeout* is for each page."""
        pages = partial(
            self.list_pages,
            resource,
            namespace,
            type=type,
            label_selector=label_selector,
            field_selector=field_selector,
            timeout=timeout,
        )
        try:
            return _whole(pages(page_size=page_size))
        except Expired:
            return _whole(pages(page_size=0))  # as client-go does

    def list_pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        type: type[T] = AS_DICT,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = 500,
        timeout: float | Callable[[], float] | None = None,
    ) -> Iterator[Page[T]]:
        """Each page when it is wanted; Expired when they outlive the server's memory (5 minutes).

        *timeout* is for each page; a function is asked each time.
        """
        path = resource.path(namespace)
        query = _selecting(label_selector, field_selector) | _given(limit=page_size or None)
        token = ""
        while True:
            asked = {**query, "continue": token} if token else query
            limit = timeout() if callable(timeout) else timeout
            page: Page[T] = self.request("GET", path, query=asked, type=Page[type], timeout=limit)  # type: ignore[valid-type]
            yield page
            token = page.metadata.continue_
            if not token:
                return

    def create(
        self,
        resource: Resource,
        body: object,
        namespace: str | None = None,
        *,
        type: type[T] = AS_DICT,
        timeout: float | None = None,
    ) -> T:
        return self.request("POST", resource.path(namespace), body=body, type=type, timeout=timeout)

    def replace(
        self,
        resource: Resource,
        name: str,
        body: object,
        namespace: str | None = None,
        *,
        type: type[T] = AS_DICT,
        timeout: float | None = None,
    ) -> T:
        """PUT; *body* carries ``metadata.resourceVersion``; Conflict when it is not the current one."""
        return self.request("PUT", resource.path(namespace, name), body=body, type=type, timeout=timeout)

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: object,
        namespace: str | None = None,
        *,
        content_type: str = MERGE_PATCH,
        subresource: str | None = None,
        type: type[T] = AS_DICT,
        timeout: float | None = None,
    ) -> T:
        path = resource.path(namespace, name, subresource)
        return self.request("PATCH", path, body=patch, content_type=content_type, type=type, timeout=timeout)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Conflict when the object has not *uid* or *resource_version* any more."""
        preconditions = _given(uid=uid, resourceVersion=resource_version)
        options = _given(preconditions=preconditions or None, gracePeriodSeconds=grace_seconds)
        path = resource.path(namespace, name)
        self.request("DELETE", path, body=options or None, type=bytes, timeout=timeout)

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        duration: int,
        read_timeout: float,
    ) -> LineStream:
        """Events, a line each, for *duration* seconds; silence over *read_timeout* seconds is Unreachable."""
        query = _selecting(label_selector, field_selector) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": duration,
        }
        path = resource.path(namespace) + _encoded(query)
        return self._transport.open(path, timeout=self._timeout, read_timeout=read_timeout)

    def serves(self, resource: Resource, *, timeout: float | None = None) -> bool:
        """Whether discovery of its group and version lists it."""
        try:
            found = self.request("GET", resource.root, type=_Discovery, timeout=timeout)
        except NotFound:
            return False
        return any(each.name == resource.plural for each in found.resources or ())


class _ServedResource(msgspec.Struct):
    name: str


class _Discovery(msgspec.Struct):
    resources: list[_ServedResource] | None = None


def _whole(pages: Iterable[Page[T]]) -> Listing[T]:
    items: list[T] = []
    version = ""
    for page in pages:
        items += page.items or ()
        version = page.metadata.resource_version
    return Listing(items, version)


def _encoded(query: Mapping[str, object] | None) -> str:
    return "?" + urlencode(query) if query else ""


def _selecting(label_selector: str, field_selector: str) -> dict[str, object]:
    return _given(labelSelector=label_selector or None, fieldSelector=field_selector or None)


def _given(**values: Any) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}
