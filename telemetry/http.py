"""Answer the kubelet's health probes and the metrics scraper from threads of their own."""

import os
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer

import structlog
from prometheus_client import REGISTRY, CollectorRegistry, MetricsHandler

from settings.values import host_and_port

log = structlog.stdlib.get_logger(__name__)

Check = Callable[[], str | None]
"""None when all is well, else what is not."""

# A client that connects and says nothing must not keep a thread for ever.
CLIENT_TIMEOUT = 10.0


class Server(ThreadingHTTPServer):
    """A server in a daemon thread; `close` ends it and frees its port."""

    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)
        threading.Thread(target=self.serve_forever, args=(0.1,), name="http", daemon=True).start()

    def server_bind(self) -> None:
        # HTTPServer's own looks up its host name, which takes seconds where the DNS does not answer.
        TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - as in the base class
        error = sys.exception()
        if isinstance(error, (ConnectionError, TimeoutError)):
            # A probe that gives up, or a balancer that only connects: that is its own affair.
            log.debug("connection dropped", client=str(client_address), error=str(error))
            return
        log.warning("serving a request failed", client=str(client_address), exc_info=True)

    def close(self) -> None:
        self.shutdown()
        self.server_close()


def serve_health(address: str, *, live: Check, ready: Check) -> Server:
    """Answer /healthz by *live* and /readyz by *ready*: 200 and ok, or 503 and the reason."""
    checks = {"/healthz": live, "/readyz": ready}

    class Health(BaseHTTPRequestHandler):
        timeout = CLIENT_TIMEOUT

        def do_GET(self) -> None:
            check = checks.get(self.path.partition("?")[0])
            if check is None:
                self._answer(404, f"not found; here are {' and '.join(checks)}")
            elif problem := _outcome(check):
                self._answer(503, problem)
            else:
                self._answer(200, "ok")

        def _answer(self, status: int, text: str) -> None:
            body = f"{text}\n".encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            """Probes come every few seconds and are no news."""

    return Server(listen_address(address), Health)


def serve_metrics(address: str, registry: CollectorRegistry = REGISTRY) -> Server:
    """Answer /metrics with all metrics of *registry*."""

    class Metrics(MetricsHandler):
        timeout = CLIENT_TIMEOUT

    Metrics.registry = registry
    return Server(listen_address(address), Metrics)


def listen_address(address: str) -> tuple[str, int]:
    """Host and port of a configured address; a missing host is DRAWBRIDGE_BIND_HOST, or all interfaces."""
    host, port = host_and_port(address)
    return host or os.environ.get("DRAWBRIDGE_BIND_HOST") or _all_interfaces(), port


def _all_interfaces() -> str:
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"


def _outcome(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        log.exception("a health check failed to answer")
        return f"the check itself failed: {error!r}"
