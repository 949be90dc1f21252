"""200 while the node may get traffic, else 503 and the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec
import structlog
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

from healthchecker import METRICS_PATH, PATHS, STATE_PATH
from healthchecker.metrics import ANSWERS
from healthchecker.state import State

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
HERE = ", ".join([*PATHS, METRICS_PATH, STATE_PATH])

log = structlog.get_logger(__name__)

Check = Callable[[], str | None]
"""None when the node may get traffic, else why not."""
Answer = tuple[str, str, bytes]
"""Status, type and body."""


def create_app(
    check: Check, registry: CollectorRegistry = REGISTRY, *, state: Callable[[], State] = State
) -> WSGIApplication:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        status, kind, body = _answer(method, environ.get("PATH_INFO") or "/", check, registry, state)
        headers = [("Content-Type", kind), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
        start_response(status, headers)
        return [] if method == "HEAD" else [body]

    return app


def _answer(
    method: str, path: str, check: Check, registry: CollectorRegistry, state: Callable[[], State]
) -> Answer:
    if method not in ("GET", "HEAD"):
        return "405 Method Not Allowed", TEXT, b"only GET and HEAD are answered\n"
    if path in PATHS:
        return _health(check)
    if path == METRICS_PATH:
        return "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry)
    if path == STATE_PATH:
        return "200 OK", JSON, msgspec.json.encode(state())
    return "404 Not Found", TEXT, f"not found; here are {HERE}\n".encode()


def _health(check: Check) -> Answer:
    problem = _outcome(check)
    ANSWERS.labels("503" if problem else "200").inc()
    if problem:
        return "503 Service Unavailable", TEXT, f"{problem}\n".encode()
    return "200 OK", TEXT, b"ok\n"


def _outcome(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        log.exception("the check failed to answer")
        return f"the check itself failed: {error!r}"
