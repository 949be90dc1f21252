"""What one phase of the nodes' lives cost: calls to the cloud, and what the leader used for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dev.bench import processes
from dev.bench.cluster import awaited_leader
from dev.bench.processes import Usage
from dev.lab.cloud.values import Call
from dev.lab.install import NAMESPACE
from dev.lab.session import Lab

T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """*leader* is what the leading controllers used in the phase, and their memory at its end."""

    calls: Sequence[Call]
    leader: Usage

    @property
    def reads(self) -> int:
        return sum(is_read(call) for call in self.calls)

    @property
    def writes(self) -> int:
        return len(self.calls) - self.reads

    @property
    def throttled(self) -> int:
        return sum(call.outcome == "RequestLimitExceeded" for call in self.calls)


def is_read(call: Call) -> bool:
    return call.action.startswith("Describe")


def measured(lab: Lab, phase: Callable[[], T]) -> tuple[T, Cost]:
    """The result of *phase*, and its cost."""
    known, before = len(lab.cloud.calls()), of_leader(lab)
    result = phase()
    after = of_leader(lab)
    used = Usage(after.seconds - before.seconds, after.bytes, after.peak)
    return result, Cost(lab.cloud.calls()[known:], used)


def of_leader(lab: Lab) -> Usage:
    return processes.of_pods(lab.client, NAMESPACE)[awaited_leader(lab)]
