"""The real client on the fake API server, without a socket."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import parse_qs

import msgspec
import urllib3

from dev.fake_api.calls import Reply, Request
from kube import connection
from runtime import threading, time

HOST = "fake://api"
Handle = Callable[[Request, float], Reply]
"""The answer to a request, within seconds."""


class Server(Protocol):
    def handle(self, call: Request) -> Reply: ...


def connection_to(api: Server, manager: str = "drawbridge") -> Any:
    """For clients that are more than a Client."""
    return Connection(lambda call, _seconds: api.handle(call), manager)


class Connection(connection.Connection):
    """Of a client that no one has to authorize."""

    def __init__(self, handle: Handle, manager: str = "drawbridge") -> None:
        pool: Any = Pool(handle, manager)
        super().__init__(HOST, pool)


class Pool:
    """As urllib3.PoolManager."""

    def __init__(self, handle: Handle, manager: str) -> None:
        self._handle, self._manager = handle, manager

    def clear(self) -> None:
        """There are no sockets."""

    def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: urllib3.Timeout | float,
        **_: object,
    ) -> Any:
        path, _mark, asked = url.removeprefix(HOST).partition("?")
        query = {name: values[0] for name, values in parse_qs(asked).items()}
        named = {name.lower(): headers[name] for name in headers} | {"user-agent": self._manager}
        call = Request(method, path, query, named, msgspec.json.decode(body) if body else None)
        timeout = timeout if isinstance(timeout, urllib3.Timeout) else urllib3.Timeout(timeout)
        limit = timeout.total or timeout.connect_timeout
        reply = self._handle(call, float(limit) if isinstance(limit, (int, float)) else math.inf)
        return Lines(reply, timeout) if reply.lines is not None else Whole(reply)


class Whole:
    """As urllib3.HTTPResponse."""

    connection = None

    def __init__(self, reply: Reply) -> None:
        self.status, self.headers, self.data = reply.status, reply.headers, reply.body
        self._rest = reply.body

    def read1(self, _size: int) -> bytes:
        read, self._rest = self._rest, b""
        return read

    def close(self) -> None:
        pass


class Lines:
    """The answer to a watch, until it ends, is shut down, or is silent for longer than the client waits."""

    connection = None

    def __init__(self, reply: Reply, timeout: urllib3.Timeout) -> None:
        assert reply.lines is not None
        read = timeout.read_timeout
        self._silence = float(read) if isinstance(read, (int, float)) else math.inf
        self.status, self.headers = reply.status, dict(reply.headers)
        self._lines, self._ended = reply.lines, threading.Event()

    def read1(self, _size: int) -> bytes:
        asked = time.monotonic()
        while not self._ended.is_set():
            if time.monotonic() - asked > self._silence:
                raise TimeoutError("the read operation timed out")
            line = next(self._lines, None)
            if line is None:
                return b""
            if line:
                return line
        raise OSError("the connection was shut down")

    def shutdown(self) -> None:
        self._ended.set()

    def close(self) -> None:
        self._ended.set()
