"""A gunicorn configuration and application for the tests of the worker: our worker with short deadlines."""

import json
import os
import resource

from telemetry import logs
from tests.features import Naps
from webhook.app import create_app
from webhook.connection import Limits
from webhook.inbox import Budget
from webhook.worker import WebhookWorker, stopping


class QuickWorker(WebhookWorker):
    limits = Limits(
        **{"first": 1.0, "request": 0.4, "linger": 0.4, **json.loads(os.environ.get("LIMITS", "{}"))}
    )
    budget = Budget(1024 * 1024)
    drain_period = float(os.environ.get("DRAIN", "0"))


logs.configure("info")
_most, _allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (int(os.environ.get("FILES", _most)), _allowed))

bind = "127.0.0.1:0"
certfile = os.environ["CERTFILE"]
keyfile = os.environ["KEYFILE"]
worker_class = QuickWorker
threads = 4
worker_connections = int(os.environ.get("CONNECTIONS", "1000"))
graceful_timeout = 8
control_socket_disable = True

app = create_app([Naps()], max_in_flight=int(os.environ.get("IN_FLIGHT", "3")), draining=stopping)
