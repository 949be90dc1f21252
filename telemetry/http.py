"""What the programs answer to probes and scrapers."""

import gzip
import os
import platform
import socket
from collections.abc import Callable
from urllib.parse import parse_qs

import structlog
from prometheus_client import REGISTRY, Gauge
from prometheus_client.exposition import choose_encoder

from telemetry.program import REVISION, VERSION
from telemetry.server import Request, Respond, Response, Server, text

log = structlog.stdlib.get_logger(__name__)

Check = Callable[[], str | None]
"""None when all is well, else the problem."""
Access = Callable[[str], Response | None]
"""None when a client with this Authorization header may read metrics, else the refusal."""
METRICS_PATH = "/metrics"

Gauge(
    "drawbridge_build_info",
    "1, with the version of the program as labels.",
    ["version", "revision", "python"],
).labels(VERSION, REVISION, platform.python_version()).set(1)


class CannotListen(Exception):
    """The message names the setting, its value and the reason."""


def serve_health(address: str, *, live: Check, ready: Check) -> Server:
    """Answer /healthz by *live* and /readyz by *ready*; CannotListen."""
    checks = {"/healthz": live, "/readyz": ready}

    def respond(request: Request) -> Response:
        if check := checks.get(request.path):
            return health(check)
        return text(404, f"not found; here are {', '.join(checks)}")

    return serve("health.healthProbeBindAddress", address, respond)


def serve_metrics(address: str, access: Access | None = None) -> Server:
    """To all clients, or those that have *access*; CannotListen."""

    def respond(request: Request) -> Response:
        if request.path != METRICS_PATH:
            return text(404, f"not found; here is {METRICS_PATH}")
        refusal = access and access(request.headers.get("authorization", ""))
        return refusal or metrics(request)

    return serve("metrics.bindAddress", address, respond)


def serve(setting: str, address: str, respond: Respond) -> Server:
    """Answer by *respond* at the *address* that *setting* has; CannotListen."""
    try:
        return Server(listen_address(address), respond)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0].lower()
        raise CannotListen(
            f"{setting} {address}: {reason}; set another address, or end what listens there"
        ) from error


def health(check: Check) -> Response:
    """200 and ok, or 503 and the problem."""
    try:
        problem = check()
    except Exception as error:
        log.exception("health check failed")
        problem = f"the check itself failed: {error!r}"
    return text(503 if problem else 200, problem or "ok")


def metrics(request: Request) -> Response:
    """All, or those that the query names, in the format that the client prefers."""
    try:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
    except TypeError:  # of a version that has other parts than numbers
        encode, content_type = choose_encoder("")
    names = parse_qs(request.query).get("name[]")
    body = encode(REGISTRY.restricted_registry(names) if names else REGISTRY)
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(200, body, {"Content-Type": content_type})
    return Response(200, gzip.compress(body), {"Content-Type": content_type, "Content-Encoding": "gzip"})


def listen_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[v6 host]:port` or `:port`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]") or default_host(), int(port)


def default_host() -> str:
    """DRAWBRIDGE_BIND_HOST, or all interfaces."""
    return os.environ.get("DRAWBRIDGE_BIND_HOST") or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")
