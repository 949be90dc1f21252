"""The ConfigMap in which the history of addresses is stored."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import structlog
from prometheus_client import Counter, Gauge

from calico.segment import MANAGED_BY, MANAGER
from controllers.ip_reservation.history import (
    KEY,
    LABEL,
    LABEL_VALUE,
    NAME,
    History,
    StoredHistory,
    packed,
)
from kube.client import Client
from kube.errors import KubeError, NotFound
from kube.resources import CONFIG_MAPS

TIMEOUT = 3.0
"""Seconds for one call: a leader that stops waits for two."""

ENTRIES = Gauge("drawbridge_ip_history_entries", "Former holders of addresses that are remembered.")
WRITES = Counter("drawbridge_ip_history_writes", "Attempts to store the history of addresses.", ["result"])
for _result in ("written", "failed"):
    WRITES.labels(_result)

log = structlog.get_logger(__name__)


class NotOurs(Exception):
    """Another client has made a ConfigMap of this name."""


class HistoryStore:
    """Every write is guarded by the version that was read or written last."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._version = ""

    def read(self) -> History | None:
        """None when there is none, or none that can be read. NotOurs, KubeError."""
        self._version = ""
        try:
            found = self._client.get(CONFIG_MAPS, NAME, self._namespace, type=StoredHistory, timeout=TIMEOUT)
        except NotFound:
            return None
        if not found.ours:
            raise NotOurs(
                f"ConfigMap {self._namespace}/{NAME} has no label {LABEL}: rename or delete it, or label it"
                f" {LABEL}={LABEL_VALUE} to have it overwritten"
            )
        self._version = found.metadata.resource_version
        try:
            return found.history
        except ValueError as error:
            log.warning("history of addresses not readable, a new one begins", error=str(error))
            return None

    def write(self, known: History) -> History:
        """What of *known* fits. Conflict, AlreadyExists or NotFound when it is not as it was read."""
        kept, stored = packed(known)
        metadata: dict[str, Any] = {"name": NAME, "labels": {MANAGED_BY: MANAGER, LABEL: LABEL_VALUE}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        body |= {"binaryData": {KEY: b64encode(stored).decode()}}
        try:
            self._version = self._written(body, metadata).metadata.resource_version
        except KubeError:
            WRITES.labels("failed").inc()
            raise
        WRITES.labels("written").inc()
        ENTRIES.set(len(kept.former))
        return kept

    def _written(self, body: dict[str, Any], metadata: dict[str, Any]) -> StoredHistory:
        if not self._version:
            return self._client.create(
                CONFIG_MAPS, body, self._namespace, type=StoredHistory, timeout=TIMEOUT
            )
        metadata["resourceVersion"] = self._version
        return self._client.replace(
            CONFIG_MAPS, NAME, body, self._namespace, type=StoredHistory, timeout=TIMEOUT
        )
