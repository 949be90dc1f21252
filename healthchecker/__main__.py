"""Follow one node's Deployment, and answer for it on the node's port until SIGTERM."""

from __future__ import annotations

import os
import sys
import threading

from healthchecker.config import BadTask, task_of
from healthchecker.connection import client_from_environment
from healthchecker.metrics import show
from healthchecker.server import Server, all_interfaces
from healthchecker.sight import Sight
from healthchecker.watcher import follow
from healthchecker.wsgi import create_app
from kube.errors import KubeError
from telemetry import logs
from telemetry.signals import stop_on_signals


def main() -> int:
    """The exit code: 0 after SIGTERM, 2 when there is nothing to start with."""
    stop = stop_on_signals()
    try:
        task = task_of(os.environ)
        client = client_from_environment(task.bound / 6)
        sight = Sight(task)
        server = Server(create_app(sight.answer, state=sight.state), all_interfaces(), task.port)
    except (BadTask, KubeError, OSError) as error:
        print(f"the health checker cannot start: {error}", file=sys.stderr)
        return 2
    logs.configure("info")
    show(sight)
    threading.Thread(target=follow, args=(client, task, sight, stop), name="follow", daemon=True).start()
    stop.wait()
    server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
