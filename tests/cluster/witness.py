"""An independent witness: in which order pods went and their addresses were reserved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Empty

from calico.segment import IPReservation
from demo.history import History, addresses
from demo.watching import Told, WatchLost, watching
from kube.client import Resource
from kube.objects import Pod
from lab.session import Lab
from tests.cluster.workloads import PODS


class Witness:
    def __init__(self, told: Told) -> None:
        self._told, self.history = told, History()

    def gone(self, pods: Sequence[Pod]) -> int:
        """How many of *pods* are gone by now."""
        self._listen()
        return sum(pod.metadata.uid in self.history.departures for pod in pods)

    def unreserved(self, pods: Sequence[Pod]) -> list[str]:
        """Those of *pods* that went, as far as is known by now, while an address of theirs was not reserved."""
        self._listen()
        return [pod.metadata.name for pod in pods if not all(map(self._covered(pod), addresses(pod)))]

    def _covered(self, pod: Pod):  # type: ignore[no-untyped-def]
        end = self.history.departures[pod.metadata.uid].revision
        return lambda cidr: any(hold.record.cidr == cidr and hold.covers(end) for hold in self.history.holds)

    def _listen(self) -> None:
        while True:
            try:
                told = self._told.get_nowait()
            except Empty:
                return
            if isinstance(told, WatchLost):
                raise told
            self.history.add(told)


@contextmanager
def witness(lab: Lab, reservations: Resource) -> Iterator[Witness]:
    """Watch all pods and all *reservations* from now until the end of the block."""
    with watching(lab.client, {PODS: Pod, reservations: IPReservation}) as told:
        yield Witness(told)
