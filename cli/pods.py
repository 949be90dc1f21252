"""A pod, as much of it as commands judge and show."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from api.elasticity import COST, GATE
from kube import types
from kube.types import SchedulingGate, Toleration, Value, converted, key_of

Raw = dict[str, Any]


class PodSpec(types.PodSpec, frozen=True):
    tolerations: tuple[Toleration, ...] = ()
    affinity: Raw | None = None
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class ContainerStatus(Value, frozen=True):
    restart_count: int = 0


class PodStatus(types.PodStatus, frozen=True):
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(types.Pod, frozen=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        return key_of(self.metadata)

    @property
    def is_gated(self) -> bool:
        return any(gate.name == GATE for gate in self.spec.scheduling_gates)

    @property
    def bound_at(self) -> datetime | None:
        return self._since("PodScheduled")

    @property
    def ready_at(self) -> datetime | None:
        return self._since("Ready")

    @property
    def cost(self) -> int:
        """0 for one that is no number, as the controller takes it."""
        try:
            return int(self.metadata.annotations.get(COST, "0"))
        except ValueError:
            return 0

    @property
    def restarts(self) -> int:
        return max((each.restart_count for each in self.status.container_statuses), default=0)

    @property
    def ordinal(self) -> int:
        text = self.metadata.name.rpartition("-")[2]
        return int(text) if text.isdecimal() else -1

    def _since(self, condition: str) -> datetime | None:
        """Since its creation where that is not said; None while *condition* is not true."""
        for each in self.status.conditions:
            if (each.type, each.status) == (condition, "True"):
                return each.last_transition_time or self.metadata.creation_timestamp
        return None


class StoredPod(Pod, frozen=True):
    """*raw* is the whole of it, which requests about it carry."""

    raw: Raw = {}


def stored(raw: Raw) -> StoredPod:
    return msgspec.structs.replace(converted(raw, StoredPod), raw=raw)
