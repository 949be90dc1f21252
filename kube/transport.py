"""One request, one answer, within one deadline; or an answer of lines that is read until it ends."""

# ruff: noqa: A002 (as in the client)

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any, TypeVar, cast

import msgspec
import urllib3

from kube.connection import Connection
from kube.errors import Unreachable, api_error
from kube.types import at_any_time
from kube.waiting import give_up
from runtime import threading, time
from telemetry.program import VERSION

T = TypeVar("T")

JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
MERGE_PATCH, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
CHUNK = 1 << 18
_FIRST_USE = threading.Lock()
_DECODERS: dict[object, msgspec.json.Decoder[Any]] = {}
"""Of types of answers: the program's own, so these are few."""


@dataclass(frozen=True)
class Typed:
    """A body of another content type than its method has by default."""

    content_type: str
    body: object


class LineStream:
    """Iterates over lines; ends with a whole answer, else raises Unreachable."""

    def __init__(self, answer: urllib3.BaseHTTPResponse, what: str) -> None:
        self._answer, self._what = answer, what

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        with _translated(self._what):
            while chunk := self._answer.read1(CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (line for line in lines if line.strip())
        if rest.strip():
            raise Unreachable(f"{self._what}: the answer ended within a line")

    def interrupt(self) -> None:
        """End a read that is under way in another thread."""
        # That thread may be closing the answer at this moment.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self._answer.shutdown()

    def __enter__(self) -> LineStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()


class Transport:
    """Requests over a connection's pool; paths come with their query."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def close(self) -> None:
        """Close idle connections."""
        self._connection.pool.clear()

    def request(
        self, method: str, path: str, *, body: object, type: type[T], timeout: float, accept: str = JSON
    ) -> T:
        what, deadline = f"{method} {path}", time.monotonic() + timeout
        give_up()
        with _translated(what):
            answer = self._send(method, path, urllib3.Timeout(total=timeout), body, accept)
            content = _read(answer, deadline)
        if answer.status >= 300:
            raise api_error(answer.status, content, answer.headers.get("Retry-After"))
        return decoded(content, type, what)

    def open(self, path: str, *, timeout: float, read_timeout: float) -> LineStream:
        """Connect within *timeout*; then no read, not of the head either, may take over *read_timeout*."""
        what = f"watch {path}"
        with _translated(what):
            answer = self._send("GET", path, urllib3.Timeout(connect=timeout, read=read_timeout))
            if answer.status >= 300:
                content = _read(answer, time.monotonic() + timeout)
                raise api_error(answer.status, content, answer.headers.get("Retry-After"))
        return LineStream(answer, what)

    def _send(
        self, method: str, path: str, timeout: urllib3.Timeout, body: object = None, accept: str = JSON
    ) -> urllib3.BaseHTTPResponse:
        headers = urllib3.HTTPHeaderDict({"User-Agent": f"drawbridge/{VERSION}", "Accept": accept})
        headers.extend(self._connection.authorization())
        typed = body if isinstance(body, Typed) else Typed(_content_type(method, body), body)
        if typed.body is not None:
            headers["Content-Type"] = typed.content_type
        return self._connection.pool.request(
            method,
            self._connection.host + path,
            body=_encoded(typed.body),
            headers=headers,
            timeout=timeout,
            retries=False,
            redirect=False,
            preload_content=False,
        )


def _content_type(method: str, body: object) -> str:
    if method != "PATCH":
        return JSON
    return JSON_PATCH if isinstance(body, list) else MERGE_PATCH


def _encoded(body: object) -> bytes | None:
    return body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
        raise Unreachable(f"{what}: {error or error.__class__.__name__}") from error


def _read(answer: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    """The whole body, or TimeoutError at *deadline* however the server trickles."""
    content = BytesIO()  # to join a list of chunks takes twice the memory, and as long as to read them
    with contextlib.closing(answer):  # when it was not read to its end; else it is back in the pool
        while chunk := _chunk(answer, deadline):
            content.write(chunk)
    return content.getvalue()


def _chunk(answer: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    # urllib3 sets the socket's timeout once for an answer, and it starts again with each read.
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the answer did not end within the timeout")
    sock = getattr(answer.connection, "sock", None)
    if sock is not None:
        sock.settimeout(left)
    return answer.read1(CHUNK)


def _new_decoder(type: Any) -> msgspec.json.Decoder[Any]:
    """msgspec completes a type when it is first used; two threads that are at it together crash the interpreter."""
    with _FIRST_USE:
        return _DECODERS.setdefault(type, msgspec.json.Decoder(type))


def decoded(content: bytes, type: type[T], what: str) -> T:
    if type is bytes:
        return cast(T, content)
    decoder = _DECODERS.get(type) or _new_decoder(type)
    try:
        return cast(T, at_any_time(decoder.decode, content))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unreachable(f"{what}: the answer cannot be read: {error}") from error
