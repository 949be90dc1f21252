"""Requests as the API server reads them, and its answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Raw = dict[str, Any]
PATH = re.compile(
    r"(?P<root>/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/[a-z]))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[a-z]+))?"
)


class Call(Protocol):
    """A request; that of misbehaving_server is one."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def query(self) -> Mapping[str, str]: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def body(self) -> Any: ...


@dataclass(frozen=True)
class Request:
    """A request that came without a socket."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None

    @property
    def watches(self) -> bool:
        return self.query.get("watch") == "true"


@dataclass(frozen=True)
class Target:
    """What a path addresses."""

    root: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target_of(path: str) -> Target | None:
    if (found := PATH.fullmatch(path)) is None:
        return None
    return Target(**{name: value or "" for name, value in found.groupdict().items()})


@dataclass(frozen=True)
class Reply:
    """A status and a body; *lines* instead, for as long as the watch goes on."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    lines: Iterator[bytes] | None = None

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Refused(Exception):
    """The request ends with a Status that is no success."""

    def __init__(self, code: int, reason: str, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after

    @property
    def reply(self) -> Reply:
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        headers = {"Retry-After": str(self.retry_after)} if self.retry_after is not None else {}
        return Reply(self.code, json.dumps(status).encode(), headers)


def refusal(code: int, reason: str, message: str = "no", *, retry_after: int | None = None) -> Reply:
    """For faults."""
    return Refused(code, reason, message, retry_after=retry_after).reply
