"""What the status is made of, as it was read; a part that could not be read is its error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from api.elasticity import GATE
from calico.segment import IPReservation
from cli.installed.types import Installed, Lease
from cli.pools.headroom import PoolFacts
from kube.errors import KubeError
from kube.types import Node, ObjectMeta, Value


class Gate(Value, frozen=True):
    name: str = ""


class PendingSpec(Value, frozen=True):
    node_name: str = ""
    scheduling_gates: tuple[Gate, ...] = ()


class PendingPod(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PendingSpec = PendingSpec()

    @property
    def is_gated(self) -> bool:
        return any(gate.name == GATE for gate in self.spec.scheduling_gates)


class Rolled(Value, frozen=True):
    """An IngressDaemonSet: *spec* and *status* as they are."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}

    def condition(self, kind: str) -> dict[str, str]:
        found: Sequence[dict[str, str]] = self.status.get("conditions") or ()
        return next((each for each in found if each.get("type") == kind), {})


@dataclass(frozen=True)
class PodCounts:
    """*pending* are those that have not started; *on_super_nodes* by super node; *total* is of the whole cluster."""

    total: int
    pending: Sequence[PendingPod]
    on_super_nodes: dict[str, int]


@dataclass(frozen=True)
class Facts:
    """None is what belongs to a feature that is off, and a *certificate* that was not to be read."""

    installed: Installed
    lease: Lease | KubeError
    certificate: bytes | KubeError | None
    segments: Sequence[IPReservation] | Exception | None = None
    nodes: Sequence[Node] | KubeError | None = None
    pods: PodCounts | KubeError | None = None
    rollouts: Sequence[Rolled] | KubeError | None = None
    pools: PoolFacts | Exception | None = None
