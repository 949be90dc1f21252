"""Nodes that need an address join and leave, by clients that repeat what was not answered."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from dev.judge import Observation
from dev.judge.observation import is_open, needs_address
from dev.lab import nodes
from dev.lab.errors import LabError
from dev.lab.session import Lab
from dev.outside import Outside
from kube.errors import AlreadyExists, KubeError, NotFound
from kube.resources import PODS
from tests.chaos import programs

VALUES: dict[str, Any] = {
    "replicaCount": 2,
    "leaderElection": {"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms"},
    "webhook": {"preStopSleepSeconds": 1, "drainPeriod": "2s"},
}
CONCURRENCY = 8
PATIENCE = 90.0
PAUSE = 0.2


def names_of(count: int) -> list[str]:
    """Of nodes that were never there before."""
    token = secrets.token_hex(3)
    return [f"n-{token}-{number}" for number in range(count)]


def join(lab: Lab, count: int) -> list[str]:
    """The names of that many nodes, which have all been taken in."""
    names = names_of(count)
    _all(partial(join_one, lab), names)
    return names


def residents(lab: Lab, outside: Outside) -> list[str]:
    """The names of nodes that have been open for a while: they join now if no test before has left any."""
    names = [name for name, each in outside.seen.nodes.items() if needs_address(each)] or join(lab, 10)
    await_open(outside, names)
    return names


def await_open(outside: Outside, names: Sequence[str], seconds: float = 60.0) -> None:
    def all_open(seen: Observation) -> bool:
        return all(name in seen.nodes and is_open(seen.nodes[name]) for name in names)

    outside.wait(all_open, f"{len(names)} nodes to open, {names[0]} among them", seconds)


def leave(lab: Lab, names: Sequence[str]) -> None:
    _all(partial(leave_one, lab), names)


def join_one(lab: Lab, name: str, instance: str | None = None) -> None:
    def ask() -> None:
        with suppress(AlreadyExists):
            nodes.join(lab.client, name, instance=instance)

    _persist(ask)


def leave_one(lab: Lab, name: str) -> None:
    def ask() -> None:
        with suppress(NotFound):
            nodes.leave(lab.client, name)

    _persist(ask)


def _all(do: Callable[[str], None], names: Sequence[str]) -> None:
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        list(pool.map(do, names))


def _persist(ask: Callable[[], None]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except KubeError:
            if time.monotonic() > deadline:
                raise
        time.sleep(PAUSE)


class Stream:
    """One node after the other."""

    def __init__(self, lab: Lab, distance: float) -> None:
        self._lab, self._distance, self._ended = lab, distance, threading.Event()
        self.names: list[str] = []

    def await_next(self, count: int) -> None:
        """Until so many more have joined."""
        enough = len(self.names) + count
        self._lab.wait(lambda: len(self.names) >= enough, PATIENCE, f"{count} more nodes to join")

    def run(self) -> None:
        while not self._ended.wait(self._distance):
            self.names += join(self._lab, 1)

    def end(self) -> None:
        self._ended.set()


@contextmanager
def streaming(lab: Lab, distance: float) -> Iterator[Stream]:
    """While the block runs, a node joins every *distance* seconds; what any of them comes to is raised."""
    stream = Stream(lab, distance)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(stream.run)
        try:
            yield stream
        finally:
            stream.end()
        running.result()


def kill_for_good(lab: Lab, pod: str) -> None:
    """Another pod takes its place, and not the same one after a pause."""
    with suppress(LabError):  # it has just come to its end by itself
        programs.kill(lab, pod)
    with suppress(NotFound):
        lab.client.delete(PODS, pod, programs.NAMESPACE, grace_seconds=0)
