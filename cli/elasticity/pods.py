"""Pods, as much of them as says where they are placed."""

from __future__ import annotations

from api.elasticity import GATE
from kube.resources import Selection
from kube.types import ObjectMeta, PodStatus, Value

PENDING = Selection(field_selector="status.phase=Pending")


class Gate(Value, frozen=True):
    name: str = ""


class PodSpec(Value, frozen=True):
    node_name: str = ""
    scheduling_gates: tuple[Gate, ...] = ()


class Pod(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_gated(self) -> bool:
        return any(gate.name == GATE for gate in self.spec.scheduling_gates)
