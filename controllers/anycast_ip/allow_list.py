"""Publish all addresses that nodes have or may get, in a ConfigMap, for allow-lists of others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from prometheus_client import Gauge

from controllers.anycast_ip.claim import MANAGED_BY, MANAGER
from controllers.anycast_ip.entries import (
    IN_USE,
    LABEL,
    LABEL_VALUE,
    Entries,
    data_of,
    dated,
    entries,
    entries_in,
    recorded,
)
from controllers.anycast_ip.sources import Sources
from kube.client import Client
from kube.errors import KubeError, NotFound
from kube.resources import CONFIG_MAPS
from kube.types import ConfigMap

PERIOD = 2.0
"""Seconds from one look at the addresses to the next."""
AGAIN = 30.0
"""Seconds after which a write that failed is repeated."""
REREAD = 300.0
"""Seconds after which the ConfigMap is read again: another client may have changed or deleted it."""

ADDRESSES = Gauge("drawbridge_anycast_ip_allow_list_addresses", "Addresses in the allow-list.")
BEHIND = Gauge(
    "drawbridge_anycast_ip_allow_list_behind_seconds",
    "For how long the allow-list could not be written; 0 while it is as it should be.",
)

log = structlog.stdlib.get_logger(__name__)


class AllowListStore:
    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    def read(self, name: str, timeout: float | None = None) -> ConfigMap | None:
        """As the API server has it; ValueError when it is not ours. *timeout* in seconds, by default the client's."""
        try:
            found = self._client.get(CONFIG_MAPS, name, self._namespace, type=ConfigMap, timeout=timeout)
        except NotFound:
            return None
        if LABEL not in found.metadata.labels:
            raise ValueError(
                f"ConfigMap {self._namespace}/{name} has no label {LABEL}: give another name, or label it"
                f" {LABEL}={LABEL_VALUE} to have it overwritten"
            )
        return found

    def write(self, name: str, data: Mapping[str, str], over: ConfigMap | None) -> ConfigMap:
        """Conflict or AlreadyExists when it is not as it was read."""
        metadata: dict[str, Any] = {"name": name, "labels": {MANAGED_BY: MANAGER, LABEL: LABEL_VALUE}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        if over is None:
            return self._client.create(CONFIG_MAPS, body, self._namespace, type=ConfigMap)
        metadata["resourceVersion"] = over.metadata.resource_version
        return self._client.replace(CONFIG_MAPS, name, body, self._namespace, type=ConfigMap)


class AllowList:
    """`turn` writes it when it changes; *enqueue* adds the uid of a claim whose address was listed."""

    def __init__(self, sources: Sources, store: AllowListStore, enqueue: Callable[[str], None]) -> None:
        self._sources, self._store, self._enqueue = sources, store, enqueue
        self._clock = sources.memory.clocks.monotonic
        self._announcements = sources.memory.announcements
        self._name, self._due, self._read_at = "", -math.inf, -math.inf
        self._failing_since: float | None = None
        self._found: ConfigMap | None = None
        self._ips: dict[str, str] = {}

    def turn(self) -> None:
        """What is due; before the cluster's addresses were read once, they are not known well enough."""
        name = self._sources.settings().allow_list.config_map
        if not name:
            self._report("")
            return
        if self._clock() < self._due or self._sources.inventory.read_at is None:
            return
        self._due = self._clock() + PERIOD
        try:
            self._publish(name)
            self._report("")
        except (KubeError, ValueError) as error:
            self._due, self._read_at = self._clock() + AGAIN, -math.inf
            self._report(str(error))
            log.warning("allow-list not written", name=name, error=str(error))

    def _report(self, problem: str) -> None:
        self._announcements.failed(problem)
        now = self._clock()
        since = now if self._failing_since is None else self._failing_since
        self._failing_since = since if problem else None
        BEHIND.set(now - since if problem else 0.0)

    def _publish(self, name: str) -> None:
        if name != self._name or self._clock() >= self._read_at + REREAD:
            self._found = self._store.read(name)
            self._name, self._read_at = name, self._clock()
            self._announcements.read(recorded(entries_in(self._found)))
            self._enqueue_waiting(entries_in(self._found))
        before = entries_in(self._found)
        listed = self._entries(before)
        data = data_of(listed)
        if self._found is None or self._found.data != data:
            self._found = self._store.write(name, data, self._found)
            self._announcements.written(recorded(listed))
            self._enqueue_waiting(listed, before)
            log.info("allow-list written", name=name, addresses=len(listed))
        ADDRESSES.set(len(listed))

    def _entries(self, before: Entries) -> Entries:
        """IPs are as the cloud says. The annotations of nodes do not count: each kubelet can write its node's."""
        nodes = {each.metadata.uid: each for each in self._sources.nodes.list()}
        claims = self._sources.claims.claims.values()
        known = {each.id: each.address for each in before} | self._ips | self._sources.inventory.ips()
        self._ips = {each.address: known[each.address] for each in claims if each.address in known}
        return dated(entries(claims, nodes, self._ips, before), before, self._sources.memory.clocks.now())

    def _enqueue_waiting(self, listed: Entries, before: Entries = ()) -> None:
        """Nodes may wait for what is listed and was not *before*."""
        new = {each.id for each in listed if each.state != IN_USE} - {each.id for each in before}
        for claim in self._sources.claims.claims.values() if new else ():
            if claim.address in new:
                self._enqueue(claim.uid)
