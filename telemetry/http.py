"""HTTP servers for probes and scrapers: on daemon threads, with few connections and a deadline for each client."""

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

import structlog
from prometheus_client import REGISTRY, CollectorRegistry, MetricsHandler

log = structlog.stdlib.get_logger(__name__)

Check = Callable[[], str | None]
"""None when all is well, else the problem."""

CLIENT_TIMEOUT = 5.0
"""Seconds that a client may be silent."""
MAX_CONNECTIONS = 64
"""One more ends the oldest, which is no probe: those take milliseconds."""
TEXT = "text/plain; charset=utf-8"


class Handler(BaseHTTPRequestHandler):
    """GET and HEAD are answered by `answer`."""

    timeout = CLIENT_TIMEOUT

    def answer(self, path: str) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.answer(self.path.partition("?")[0])

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.reply(405, "only GET and HEAD are answered")

    def reply(self, status: int, content: str | bytes, content_type: str = TEXT) -> None:
        body = f"{content}\n".encode() if isinstance(content, str) else content
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def reply_health(self, check: Check) -> int:
        """200 and ok, or 503 and the problem; the status."""
        try:
            problem = check()
        except Exception as error:
            log.exception("health check failed")
            problem = f"the check itself failed: {error!r}"
        status = 503 if problem else 200
        self.reply(status, problem or "ok")
        return status

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
        """Probes come every few seconds: not logged."""


class Server(ThreadingHTTPServer):
    """Serves on daemon threads; `close` ends it and frees its port. OSError when the port is taken."""

    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._open: dict[Any, None] = {}
        self._lock = threading.Lock()
        super().__init__(address, handler)
        threading.Thread(target=self.serve_forever, args=(0.1,), name="http", daemon=True).start()

    def server_bind(self) -> None:
        # HTTPServer's own looks up its host name, which takes seconds where the DNS does not answer.
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[request] = None
            oldest = next(iter(self._open)) if len(self._open) > MAX_CONNECTIONS else None
            self._open.pop(oldest, None)
        if oldest is not None:
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it and then closes it
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - as in the base class
        error = sys.exception()
        if isinstance(error, (ConnectionError, TimeoutError)):  # a probe that gives up, or only connects
            log.debug("connection dropped", client=str(client_address), error=str(error))
            return
        log.warning("serving a request failed", client=str(client_address), exc_info=True)

    def close(self) -> None:
        self.shutdown()
        self.server_close()


def serve_health(address: str, *, live: Check, ready: Check) -> Server:
    """Answer /healthz by *live* and /readyz by *ready*."""
    checks = {"/healthz": live, "/readyz": ready}

    class Health(Handler):
        def answer(self, path: str) -> None:
            if check := checks.get(path):
                self.reply_health(check)
            else:
                self.reply(404, f"not found; here are {' and '.join(checks)}")

    return Server(listen_address(address), Health)


def serve_metrics(address: str, registry: CollectorRegistry = REGISTRY) -> Server:
    class Metrics(MetricsHandler):
        timeout = CLIENT_TIMEOUT

    Metrics.registry = registry
    return Server(listen_address(address), Metrics)


def listen_address(address: str) -> tuple[str, int]:
    """Host and port of a configured address."""
    from settings.values import host_and_port  # brings pydantic, too large for a health checker on each node

    host, port = host_and_port(address)
    return host or default_host(), port


def default_host() -> str:
    """DRAWBRIDGE_BIND_HOST, or all interfaces."""
    return os.environ.get("DRAWBRIDGE_BIND_HOST") or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")
