"""Asynchronous tasks, when each ends, and the states of their addresses: CREATING, UNBIND, BINDING, BIND, UNBINDING,
OFFLINING, gone."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from dev.lab.cloud.values import Address, Kind, Status, Task

FIRST = 61_531_428
MEANWHILE: dict[Kind, Status] = {
    "allocate": "CREATING",
    "bind": "BINDING",
    "unbind": "UNBINDING",
    "release": "OFFLINING",
}


def begun(kind: Kind, address: Address) -> Address:
    """As the address is while the task runs."""
    return replace(address, status=MEANWHILE.get(kind, address.status))


def ended(kind: Kind, address: Address, well: bool) -> Address | None:
    """As it is when the task has ended, well or not; None when it is gone."""
    if kind == "bandwidth":
        return address
    if kind == "release":
        return None
    return replace(address, status="BIND" if kind == "bind" and well else "UNBIND")


class Tasks:
    def __init__(self) -> None:
        self._all: dict[int, Task] = {}
        self._due: list[tuple[float, int]] = []

    def start(self, kind: Kind, addresses: Sequence[str], due: float, **how: Any) -> Task:
        task = Task(id=FIRST + len(self._all), kind=kind, addresses=addresses, due=due, **how)
        self._all[task.id] = task
        heapq.heappush(self._due, (due, task.id))
        return task

    def get(self, number: int) -> Task | None:
        return self._all.get(number)

    def take_due(self, now: float) -> Iterator[Task]:
        """Those that end until *now*, in order, each once."""
        while self._due and self._due[0][0] <= now:
            yield self._all[heapq.heappop(self._due)[1]]

    def running_on(self, address_id: str) -> bool:
        return any(address_id in self._all[number].addresses for _, number in self._due)

    @property
    def running(self) -> list[Task]:
        return [self._all[number] for _, number in self._due]
