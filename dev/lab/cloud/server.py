"""Serve the emulator on a port, with a thread for each connection.

The cloud is called over TLS; the admin API and the metadata service of an instance, at the same port, over HTTP.
"""

from __future__ import annotations

import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dev.lab.cloud import tls
from dev.lab.cloud.admin_api import steer
from dev.lab.cloud.config import Knobs
from dev.lab.cloud.emulator import Emulator, Reply
from dev.lab.cloud.request import Request
from dev.lab.cloud.world import World

HOST = "127.0.0.1"
HANDSHAKE = b"\x16"
"""How a connection over TLS begins (RFC 8446, section 5.1)."""


@dataclass(frozen=True)
class Cloud:
    """A running emulator; *world* is what it has, *knobs* may be changed at any time."""

    endpoint: str
    world: World
    knobs: Knobs


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Server

    def _any(self) -> None:
        request = self._request()
        reply = steer(self.server.emulator.world, request) or self.server.emulator.reply(request)
        self.server.ending.wait(reply.delay)
        if reply.lost or self.server.ending.is_set():
            self._break()
        else:
            self._send(reply)

    do_GET = do_POST = do_PATCH = do_DELETE = _any  # noqa: N815

    def _request(self) -> Request:
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        length = headers.get("content-length", "")
        body = self.rfile.read(int(length) if length.isdecimal() else 0)
        return Request(self.command, path, query, headers, body)

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def _break(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 256

    def __init__(self, emulator: Emulator, host: str, port: int) -> None:
        super().__init__((host, port), Handler)
        self.emulator = emulator
        self.ending = threading.Event()
        self._open: set[socket.socket] = set()
        self._opening = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._opening:
            self._open.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        super().process_request_thread(self._over_tls(request), client_address)

    def _over_tls(self, request: socket.socket) -> socket.socket:
        """*request*, over TLS if that is how it begins."""
        with suppress(OSError):
            if request.recv(1, socket.MSG_PEEK) == HANDSHAKE:
                context = tls.context(request.getsockname()[0])
                with self._opening:
                    self._open.discard(request)
                    # The handshake is made when the request is read.
                    request = context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
                    self._open.add(request)
        return request

    def shutdown_request(self, request: Any) -> None:
        with self._opening:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none; anything else is a bug, and is shown."""
        if not isinstance(sys.exc_info()[1], ConnectionError | ssl.SSLError):
            super().handle_error(request, client_address)

    def end(self) -> None:
        """Serve no more: connections are cut, and their threads are waited for."""
        self.ending.set()
        self.shutdown()
        with self._opening:
            for connection in self._open:
                with suppress(OSError):
                    # Below TLS, whose own shutdown is not for another thread than the one that reads.
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
        self.server_close()


@contextmanager
def serving(
    knobs: Knobs | None = None, *, host: str = HOST, port: int = 0, clock: Callable[[], float] = time.time
) -> Iterator[Cloud]:
    """*clock* is for tasks, limits and lags; signatures are measured by the time of day."""
    world = World(knobs or Knobs(), clock)
    server = Server(Emulator(world, time.time), host, port)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield Cloud(f"{host}:{server.server_port}", world, world.knobs)
    finally:
        server.end()
        thread.join()
