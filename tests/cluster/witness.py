"""An independent witness: in which order pods went and their addresses were reserved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from calico.segment import IPReservation
from dev.lab.history import History, Observation, addresses
from dev.lab.session import Lab
from dev.lab.watching import Observations, observed_by_now, watching
from kube.client import Resource
from kube.types import Pod
from tests.cluster.workloads import PODS


class Witness:
    """Follows all pods and all IPReservations; each look takes in what has happened by then."""

    def __init__(self, observations: Observations) -> None:
        self._observations, self._history = observations, History()

    @property
    def history(self) -> History:
        for observation in observed_by_now(self._observations):
            self._take_in(observation)
        return self._history

    def _take_in(self, observation: Observation) -> None:
        self._history.add(observation)

    def gone(self, pods: Sequence[Pod]) -> int:
        """How many of *pods* are gone by now."""
        departures = self.history.departures
        return sum(pod.metadata.uid in departures for pod in pods)

    def unreserved(self, pods: Sequence[Pod]) -> list[str]:
        """Those of *pods* that went, so far, while an address of theirs was not reserved."""
        history = self.history
        return [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods if not _kept(history, pod)]


def _kept(history: History, pod: Pod) -> bool:
    end = history.departures[pod.metadata.uid].revision
    return addresses(pod) <= {hold.record.cidr for hold in history.holds if hold.covers(end)}


@contextmanager
def witness(lab: Lab, reservations: Resource) -> Iterator[Witness]:
    """Watch all pods and all *reservations* from now until the end of the block."""
    with watching(lab.client, {PODS: Pod, reservations: IPReservation}) as observations:
        yield Witness(observations)
