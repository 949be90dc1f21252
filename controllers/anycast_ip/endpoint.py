"""Serve the allow-list over HTTP, on each replica of the controllers."""

from __future__ import annotations

import os
from collections.abc import Callable

from controllers.anycast_ip.allow_list import AllowListStore
from controllers.anycast_ip.feed import Feed
from kube.client import Client
from kube.types import ConfigMap
from runtime import time
from settings import Settings
from telemetry.http import serve as serve_at
from telemetry.server import Server

TIMEOUT = 3.0
"""Seconds for a read of the ConfigMap: less than a third of what a connection has, for those who wait for another."""


def serve(client: Client, settings: Callable[[], Settings]) -> Server | None:
    """None when it is off; CannotListen."""
    now = settings()
    http = now.anycast_ip.allow_list.http
    if not http.enabled:
        return None
    namespace = os.environ.get("POD_NAMESPACE") or now.leader_election.resource_namespace
    store = AllowListStore(client, namespace)

    def read() -> ConfigMap | None:
        name = settings().anycast_ip.allow_list.config_map
        return store.read(name, TIMEOUT)

    feed = Feed(read, time.monotonic, time.sleep)
    return serve_at("anycastIP.allowList.http.bindAddress", http.bind_address, feed.respond)
