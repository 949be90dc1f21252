"""Objects of the cluster, as much of them as several commands show."""

from __future__ import annotations

from typing import Any

from api.elasticity import GATE
from api.ingress_daemonset.status import Progressing, Status, status_of
from api.ingress_daemonset.types import Metadata
from kube.types import ObjectMeta, PodStatus, Value

UNKNOWN = "Unknown"
STOPPED = (
    Progressing.HALTED,
    Progressing.ROLLING_BACK,
    Progressing.ROLLED_BACK,
    Progressing.CANARY_DEGRADED,
)
"""States in which a rollout does not go on by itself."""


class Gate(Value, frozen=True):
    name: str = ""


class PodSpec(Value, frozen=True):
    node_name: str = ""
    scheduling_gates: tuple[Gate, ...] = ()


class Pod(Value, frozen=True):
    """What is read of a pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_gated(self) -> bool:
        return any(gate.name == GATE for gate in self.spec.scheduling_gates)


class StoredResource(Value, frozen=True):
    """An IngressDaemonSet: *spec* and *status* as they are, also when the controllers cannot read them."""

    metadata: Metadata = Metadata()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}

    @property
    def reported(self) -> Status:
        return status_of(self.status)
