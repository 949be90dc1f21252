"""Watch one node's Deployment, and answer health checks for it on the node's port until SIGTERM."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec.structs import replace
from prometheus_client import Counter

from api.health_checks import METRICS_PATH, PATHS, READY_PATH, STATE_PATH, State
from healthchecker.checker import Checker, export_metrics
from healthchecker.config import Config, ConfigError
from healthchecker.connections import Counter as ConnectionCounter
from healthchecker.connections import count_sockets, read_metric
from healthchecker.watcher import follow
from kube.client import Client
from kube.errors import KubeError
from runtime import threading
from telemetry import logs
from telemetry.http import Check, default_host, health, metrics
from telemetry.program import stop_on_signals
from telemetry.server import Request, Response, Server, text

ANSWERS = Counter("drawbridge_healthchecker_answers", "Answers to load balancers.", ["status"])


def serve(check: Check, state: Callable[[], State], address: tuple[str, int]) -> Server:
    """Serve until `close`. OSError when the port is taken."""

    def respond(request: Request) -> Response:
        if request.path in PATHS:
            response = health(check)
            ANSWERS.labels(str(response.status)).inc()
            return response
        if request.path == METRICS_PATH:
            return metrics(request)
        if request.path == STATE_PATH:
            return Response(200, msgspec.json.encode(state()), {"Content-Type": "application/json"})
        if request.path == READY_PATH:
            return health(lambda: None if state().seen_seconds_ago is not None else state().reason)
        return text(404, f"not found; here are {', '.join([*PATHS, METRICS_PATH, STATE_PATH, READY_PATH])}")

    return Server(address, respond)


def counter_of(config: Config) -> ConnectionCounter | None:
    """None when connections are not counted."""
    if endpoint := config.endpoint:
        return ConnectionCounter(lambda: read_metric(endpoint))
    return ConnectionCounter(lambda: count_sockets(config.counted)) if config.counted else None


def state_of(checker: Checker, counter: ConnectionCounter | None) -> State:
    state = checker.state()
    if counter is None:
        return state
    count = counter.latest()
    return replace(state, connections=count.connections, connections_error=count.error)


def main() -> int:
    """The exit code: 0 after SIGTERM, 2 when it cannot start."""
    stop = stop_on_signals()
    try:
        config = Config.from_environment(os.environ)
        client = Client.from_environment(timeout=config.bound / 6)
        checker, counter = Checker(config), counter_of(config)
        server = serve(checker.problem, partial(state_of, checker, counter), (default_host(), config.port))
    except (ConfigError, KubeError, OSError) as error:
        print(f"the health checker cannot start: {error}", file=sys.stderr)
        return 2
    logs.configure("info")
    export_metrics(checker)
    threading.Thread(target=follow, args=(client, config, checker, stop), name="watch", daemon=True).start()
    stop.wait()
    server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
