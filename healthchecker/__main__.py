"""Watch one node's Deployment, and answer health checks for it on the node's port until SIGTERM."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, generate_latest

from healthchecker import METRICS_PATH, PATHS, STATE_PATH, State
from healthchecker.checker import Checker, export_metrics
from healthchecker.config import Config, ConfigError
from healthchecker.service_account import client_from_environment
from healthchecker.watcher import follow
from kube.errors import KubeError
from telemetry import logs, stop_on_signals
from telemetry.http import Check, Handler, Server, default_host

ANSWERS = Counter("drawbridge_healthchecker_answers", "Answers to load balancers.", ["status"])


def serve(
    check: Check, state: Callable[[], State], address: tuple[str, int], registry: CollectorRegistry = REGISTRY
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


def main() -> int:
    """The exit code: 0 after SIGTERM, 2 when it cannot start."""
    stop = stop_on_signals()
    try:
        config = Config.from_environment(os.environ)
        client = client_from_environment(config.bound / 6)
        checker = Checker(config)
        server = serve(checker.answer, checker.state, (default_host(), config.port))
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
