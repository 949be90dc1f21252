"""How often returns of a workload have failed in a row: stored, so that a new leader goes on counting.

An eviction counts as a failure until its replacement is local: so one whose outcome no leader has seen counts, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
import structlog

from controllers.elasticity.pods import Pod
from controllers.elasticity.super_nodes import MANAGED_BY, MANAGER
from kube.client import Client
from kube.errors import KubeError
from kube.store import Store
from kube.types import ConfigMap, Value, key_of

NAME, LABEL = "drawbridge-returns", "drawbridge.io/returns"
KEY = "failures.json"
"""Of the ConfigMap that has them."""
MOST = 5
"""Failures in a row after which no pod of that revision is evicted any more."""
LONGEST = 86400.0
MOST_STORED = 1000

log = structlog.stdlib.get_logger(__name__)


class Failed(Value, frozen=True):
    """So many times in a row; the next eviction of the workload may be at that time."""

    times: int
    until: datetime
    workload: str = ""

    @property
    def is_final(self) -> bool:
        return self.times >= MOST


_DECODER = msgspec.json.Decoder(dict[str, Failed])


def pause(times: int, after: float) -> float:
    """Twice as long with each failure in a row, a day at most."""
    return min(after * 2.0 ** min(times, 64), LONGEST)


def once_more(before: Failed | None, pod: Pod, after: float, now: datetime) -> Failed:
    times, at, owner = (before.times if before else 0) + 1, pod.metadata, pod.metadata.controller
    workload = f"{at.namespace}/{owner.name}" if owner else key_of(at)
    return Failed(times, now + timedelta(seconds=pause(times, after)), workload)


class Failures:
    """What is *known*, by key, holds; it is stored by `save`."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._store = Store(client, namespace, ConfigMap)
        self.known: dict[str, Failed] = {}
        self._stored: str | None = None
        """None until it is loaded."""

    def load(self) -> None:
        """Once. KubeError."""
        if self._stored is None:
            self.known = self._read()
            self._stored = _encoded(self.known)

    def save(self) -> None:
        """What has changed; what cannot be written now is written the next time."""
        if (content := _encoded(self.known)) == self._stored:
            return
        try:
            self._store.write(NAME, {MANAGED_BY: MANAGER, LABEL: "elasticity"}, data={KEY: content})
        except KubeError as error:
            log.warning("failed returns not stored", error=str(error))
        else:
            self._stored = content

    def _read(self) -> dict[str, Failed]:
        found = self._store.read(NAME)
        try:
            return _DECODER.decode(found.data.get(KEY, "{}")) if found else {}
        except msgspec.MsgspecError as error:
            log.warning("failed returns not readable, they are counted from none", error=str(error))
            return {}


def _encoded(known: Mapping[str, Failed]) -> str:
    latest = sorted(known.items(), key=lambda item: item[1].until)[-MOST_STORED:]
    return msgspec.json.encode(dict(sorted(latest))).decode()
