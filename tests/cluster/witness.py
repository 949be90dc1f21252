"""An independent witness: in which order pods went and their addresses were reserved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from calico.segment import IPReservation
from kube.client import Resource
from kube.types import Pod
from lab.history import History, addresses
from lab.session import Lab
from lab.watching import Observations, observed_by_now, watching
from tests.cluster.workloads import PODS


class Witness:
    def __init__(self, observations: Observations) -> None:
        self._observations, self.history = observations, History()

    def history_so_far(self) -> History:
        """All that has happened, so far."""
        self._listen()
        return self.history

    def gone(self, pods: Sequence[Pod]) -> int:
        """How many of *pods* are gone by now."""
        self._listen()
        return sum(pod.metadata.uid in self.history.departures for pod in pods)

    def unreserved(self, pods: Sequence[Pod]) -> list[str]:
        """Those of *pods* that went, so far, while an address of theirs was not reserved."""
        self._listen()
        return [pod.metadata.name for pod in pods if not self._left_its_addresses(pod)]

    def _left_its_addresses(self, pod: Pod) -> bool:
        end = self.history.departures[pod.metadata.uid].revision
        held = {hold.record.cidr for hold in self.history.holds if hold.covers(end)}
        return addresses(pod) <= held

    def _listen(self) -> None:
        for observation in observed_by_now(self._observations):
            self.history.add(observation)


@contextmanager
def witness(lab: Lab, reservations: Resource) -> Iterator[Witness]:
    """Watch all pods and all *reservations* from now until the end of the block."""
    with watching(lab.client, {PODS: Pod, reservations: IPReservation}) as observations:
        yield Witness(observations)
