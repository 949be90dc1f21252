"""A small HTTP server: one thread for all connections, a few for answers, and a deadline for each connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

import structlog

from runtime import futures, threading

log = structlog.stdlib.get_logger(__name__)

DEADLINE = 10.0
"""Seconds from the connection to the last byte of its response."""
MAX_CONNECTIONS = 64
"""One more ends the one that has been without a request for longest, which is no probe: those send theirs at once.

With those of two such servers, a webhook server with its default of threads and a full pool keeps below 1024 files, the
limit in many containers.
"""
BACKLOG = 1024
AT_ONCE = 8
"""Connections that are accepted before requests are read again: few, or new ones would end a probe unread."""
MAX_HEAD = 16 * 1024
THREADS = 4
TEXT = "text/plain; charset=utf-8"


class Request(NamedTuple):
    path: str
    query: str = ""
    headers: Mapping[str, str] = {}
    """By their names in lower case."""


class Response(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str] = {"Content-Type": TEXT}


Respond = Callable[[Request], Response]
"""Called in a thread for each GET and HEAD."""


def text(status: int, message: str) -> Response:
    return Response(status, f"{message}\n".encode())


class Server:
    """Serves from its creation until `close`, which frees its port. OSError when the port is taken."""

    def __init__(self, address: tuple[str, int], respond: Respond, deadline: float = DEADLINE) -> None:
        self._respond, self._deadline = respond, deadline
        v6 = ":" in address[0]
        family = socket.AF_INET6 if v6 else socket.AF_INET
        self._listener = socket.create_server(address, family=family, dualstack_ipv6=v6)
        self.server_address = self._listener.getsockname()
        self._open = 0
        self._waiting: dict[asyncio.StreamWriter, None] = {}
        """Connections without a request so far, the oldest first."""
        self._executor = futures.ThreadPoolExecutor(THREADS, "http")
        self._stop = asyncio.Event()
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(
            self._connected, sock=self._listener, limit=MAX_HEAD, backlog=AT_ONCE
        )
        self._listener.listen(BACKLOG)
        await self._stop.wait()
        self._listener.shutdown(socket.SHUT_RDWR)  # also where a child, just forked, still has a copy of it
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        self._waiting[writer] = None
        if self._open > MAX_CONNECTIONS:
            self._end_oldest()
        try:
            async with asyncio.timeout(self._deadline):
                await self._answer(reader, writer)
        except (OSError, EOFError) as error:  # a probe that gives up, or only connects
            log.debug("connection dropped", client=writer.get_extra_info("peername"), error=repr(error))
        except Exception:
            log.warning("serving a request failed", exc_info=True)
        finally:
            self._open -= 1
            self._waiting.pop(writer, None)
            writer.transport.abort()

    def _end_oldest(self) -> None:
        oldest = next(iter(self._waiting))
        del self._waiting[oldest]
        oldest.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            head = b""  # which is no request
        self._waiting.pop(writer, None)
        method, response = await self._response(head)
        writer.write(head_of(response) + (b"" if method == "HEAD" else response.body))
        writer.close()
        await writer.wait_closed()

    async def _response(self, head: bytes) -> tuple[str, Response]:
        try:
            method, request = parsed(head)
        except ValueError:
            return "", text(400, "this is not a short HTTP request")
        if method not in ("GET", "HEAD"):
            return method, text(405, "only GET and HEAD are answered")
        return method, await self._loop.run_in_executor(self._executor, self._respond, request)


def parsed(head: bytes) -> tuple[str, Request]:
    """The method, and the rest; ValueError when it is not HTTP."""
    line, *lines = head.decode("latin-1").rstrip().split("\r\n")
    method, target, version = line.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"unknown version {version!r}")
    path, _, query = target.partition("?")
    headers = (each.partition(":") for each in lines)
    return method, Request(path, query, {name.lower(): value.strip() for name, _, value in headers})


def head_of(response: Response) -> bytes:
    """No cache stores it unless the response says otherwise; one without a body by its status has no length."""
    status = HTTPStatus(response.status)
    length = {} if status is HTTPStatus.NOT_MODIFIED else {"Content-Length": len(response.body)}
    headers = {"Cache-Control": "no-store", **response.headers, **length, "Connection": "close"}
    lines = [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"HTTP/1.1 {status.value} {status.phrase}", *lines, "", ""]).encode()
