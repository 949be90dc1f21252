"""IngressDaemonSets as they are stored, also when the controllers cannot read them."""

from __future__ import annotations

from typing import Any

from api.ingress_daemonset.status import Progressing, Status, status_of
from api.ingress_daemonset.types import Metadata
from kube.types import Value

UNKNOWN = "Unknown"
STOPPED = (
    Progressing.HALTED,
    Progressing.ROLLING_BACK,
    Progressing.ROLLED_BACK,
    Progressing.CANARY_DEGRADED,
)
"""States in which a rollout does not go on by itself."""


class StoredResource(Value, frozen=True):
    metadata: Metadata = Metadata()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}

    @property
    def reported(self) -> Status:
        return status_of(self.status)
