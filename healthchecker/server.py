"""Load balancers are answered in their own threads, and nobody can keep them from it by holding connections."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

CLIENT_TIMEOUT = 5.0
"""Seconds that a client may be silent."""
MOST_OPEN = 64
"""Connections; a further one ends the oldest, and that is no health check: those take milliseconds."""

log = structlog.get_logger(__name__)


class Handler(WSGIRequestHandler):
    timeout = CLIENT_TIMEOUT

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        """Health checks come every few seconds and are no news."""


class Server(ThreadingMixIn, WSGIServer):
    """Serves in a daemon thread; `close` ends it and frees its port. OSError when the port is taken."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, app: WSGIApplication, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._open: dict[Any, None] = {}
        self._lock = threading.Lock()
        super().__init__((host, port), Handler)
        self.set_app(app)
        threading.Thread(target=self.serve_forever, args=(0.1,), name="http", daemon=True).start()

    def server_bind(self) -> None:
        # The base class's looks up its host name, which takes seconds where the DNS does not answer.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[request] = None
            oldest = next(iter(self._open)) if len(self._open) > MOST_OPEN else None
            self._open.pop(oldest, None)
        if oldest is not None:
            _end(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - as in the base class
        log.debug("serving a request failed", client=str(client_address), exc_info=True)

    def close(self) -> None:
        self.shutdown()
        self.server_close()


def all_interfaces() -> str:
    """DRAWBRIDGE_BIND_HOST, or every address of the node."""
    every = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
    return os.environ.get("DRAWBRIDGE_BIND_HOST") or every


def _end(connection: socket.socket) -> None:
    """Wake the thread that reads from it, which then closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
