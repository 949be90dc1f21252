"""The webhook server in production: one process, TLS, our worker, and a drain before its end."""

import gc
import os
import sys

from gunicorn.arbiter import Arbiter

import features
from settings import SettingsError, config_path, load
from telemetry import logs
from telemetry.gunicorn import RootLogger
from telemetry.http import CannotListen, listen_address
from webhook import app as _app  # noqa: F401 - see `pre_fork`
from webhook.health import SideServers
from webhook.worker import WebhookWorker

# For refusals while all requests in flight occupy a thread.
SPARE_THREADS = 4
# The longest timeout of an API server, and time for the last bytes.
LONGEST_REQUEST, LEEWAY = 30, 5

try:
    _settings = load(config_path())
except SettingsError as error:
    sys.exit(f"{config_path()} cannot be used:\n{error}")

logs.configure(_settings.logging.level)
logger_class = RootLogger
loglevel = _settings.logging.level

_host, _port = listen_address(f":{_settings.webhook.port}")
bind = f"[{_host}]:{_port}" if ":" in _host else f"{_host}:{_port}"
certfile = os.path.join(_settings.webhook.cert_dir, "tls.crt")
keyfile = os.path.join(_settings.webhook.cert_dir, "tls.key")

worker_class = WebhookWorker
workers = 1
threads = _settings.webhook.threads + SPARE_THREADS
worker_connections = threads + 256
backlog = 512
timeout = 30
graceful_timeout = int(_settings.webhook.drain_period) + LONGEST_REQUEST + LEEWAY
control_socket_disable = True
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108 - the heartbeat file


features.preload()


def pre_fork(_server: object, _worker: object) -> None:
    """Let the worker share the memory of all modules: they are imported above, and the collector writes to none."""
    gc.collect()
    gc.freeze()


def post_worker_init(worker: WebhookWorker) -> None:
    # Imported in the worker: it opens files and connections.
    import wsgi

    worker.client_ca = lambda: wsgi.settings.current.webhook.client_ca
    worker.drain_period = _settings.webhook.drain_period
    try:
        worker.side_servers = SideServers(worker, wsgi.settings, wsgi.client)
    except CannotListen as error:
        print(f"the webhook server cannot start:\n{error}", file=sys.stderr)
        sys.exit(Arbiter.WORKER_BOOT_ERROR)  # ends the arbiter, too, which would fork another worker


def worker_exit(_server: object, worker: WebhookWorker) -> None:
    if side_servers := getattr(worker, "side_servers", None):
        side_servers.close()
