"""Health checks of load balancers, the state for the controllers and metrics, on one port."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, generate_latest

from healthchecker import METRICS_PATH, PATHS, STATE_PATH
from healthchecker.state import State
from telemetry.http import Check, Handler, Server

ANSWERS = Counter("drawbridge_healthchecker_answers", "Answers to load balancers.", ["status"])


def serve(
    check: Check,
    state: Callable[[], State],
    address: tuple[str, int],
    registry: CollectorRegistry = REGISTRY,
) -> Server:
    """Serve until `close`. OSError when the port is taken."""

    class HealthCheck(Handler):
        def answer(self, path: str) -> None:
            if path in PATHS:
                ANSWERS.labels(str(self.reply_health(check))).inc()
            elif path == METRICS_PATH:
                self.reply(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            elif path == STATE_PATH:
                self.reply(200, msgspec.json.encode(state()), "application/json")
            else:
                self.reply(404, f"not found; here are {', '.join([*PATHS, METRICS_PATH, STATE_PATH])}")

    return Server(address, HealthCheck)
