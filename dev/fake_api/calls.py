"""Requests as the API server reads them, and its answers."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Raw = dict[str, Any]
PATH = re.compile(
    r"(?P<root>/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/[a-z]))?"
    r"/(?P<plural>[a-z][a-z0-9]*)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[a-z]+))?"
)


@dataclass(frozen=True)
class Request:
    """A request; that of misbehaving_server is one that came over a socket."""

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


@functools.lru_cache(10_000)
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

    def __call__(self, handler: Any) -> None:
        """Send it, as an Answer of misbehaving_server."""
        if self.lines is not None:
            self._stream(handler, self.lines)
            return
        handler.send_response(self.status)
        for name, value in {"Content-Type": "application/json", **self.headers}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(self.body)))
        handler.end_headers()
        handler.wfile.write(self.body)

    def _stream(self, handler: Any, lines: Iterator[bytes]) -> None:
        handler.start_lines()
        for line in lines:
            if handler.server.closing.is_set():
                handler.close_connection = True
                return
            if line:
                handler.line(line)
        handler.line(b"")


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
