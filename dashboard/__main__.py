"""`python -m dashboard`: serve the page in the cluster, read only, behind a proxy of the operator that authenticates.

Served by gunicorn, since it has many users.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from flask import Flask
from gunicorn.app.base import BaseApplication

from cli.cluster import cluster_of
from cli.session import log_no_decisions
from dashboard.app import create_read_only_app
from telemetry import logs
from telemetry.gunicorn import RootLogger
from telemetry.http import listen_address

LEVEL = "warning"
OPTIONS: dict[str, Any] = {
    "worker_class": "gthread",
    "workers": 1,
    "threads": 64,
    "keepalive": 75,
    "graceful_timeout": 5,
    "forwarded_allow_ips": "",
    "control_socket_disable": True,
    "worker_tmp_dir": "/dev/shm",  # noqa: S108 - the heartbeat file
    "loglevel": LEVEL,
    "logger_class": RootLogger,
}


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """*make* is called in the worker: what it opens must not be shared with the process that forks it."""

    def __init__(self, address: tuple[str, int], make: Callable[[], Flask]) -> None:
        self._address, self._make = address, make
        super().__init__()

    def load_config(self) -> None:
        host, port = self._address
        self.cfg.set("bind", f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        for name, value in OPTIONS.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        return self._make()


def app_of(hosts: Collection[str]) -> Flask:
    """Of the cluster in which it runs, with the permissions of its ServiceAccount."""
    return create_read_only_app(cluster_of(), hosts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dashboard", description=__doc__)
    parser.add_argument("--listen", default=":8090", help="the address, which gets no TLS (default: :8090)")
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME", help="it is served as")
    chosen = parser.parse_args()
    hosts = {each.lower() for each in chosen.allow_host}
    logs.configure(LEVEL)
    log_no_decisions()
    Server(listen_address(chosen.listen), partial(app_of, hosts)).run()


if __name__ == "__main__":
    main()
