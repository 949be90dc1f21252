"""An independent judge: what was promised about a storm's pods, held against what two watches saw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from calico.segment import RECORDS, SIZE, IPReservation, canonical
from kube.client import Client, Resource
from kube.types import Pod
from lab.history import History, Hold, Observation
from lab.session import Lab
from lab.watching import Observations, watching
from tests.chaos.rules import ENTRIES, HOLD
from tests.cluster.witness import Witness


class Judge(Witness):
    def __init__(self, lab: Lab, observations: Observations) -> None:
        super().__init__(observations)
        self._lab = lab
        self.misshapen: list[str] = []
        """What was wrong with any segment at any time."""

    def await_running(self, namespace: str, count: int) -> list[Pod]:
        self._lab.wait(
            lambda: len(self.history.running(namespace)) == count, 120, f"{count} pods of {namespace} to run"
        )
        return self.history.running(namespace)

    def await_gone(self, pods: Sequence[Pod]) -> None:
        self._lab.wait(lambda: self.gone(pods) == len(pods), 120, f"{len(pods)} pods to be gone")

    def await_end(self, pods: Sequence[Pod]) -> None:
        """Of *pods* first, of all reservations then: none is forgotten."""
        self.await_gone(pods)
        # The one watch may report the departures before the other reports the reservations.
        self._lab.wait(lambda: not self.unreserved(pods), 30, f"no address to be lost of {len(pods)} pods")
        self._lab.wait(lambda: not self.history.standing(), 120, "every address to be released")

    def complaints(self, pods: Sequence[Pod]) -> list[str]:
        """What was not as promised about *pods*, all of which are gone and released by now."""
        history = self.history
        lost = [f"{pod} went and was not reserved" for pod in self.unreserved(pods)]
        return [*lost, *late(history, pods), *early(history, pods), *self.misshapen]

    def _take_in(self, observation: Observation) -> None:
        super()._take_in(observation)
        if isinstance(observation.object, IPReservation) and observation.object.ours:
            self.misshapen += misshapen(observation.object)


def late(history: History, pods: Sequence[Pod]) -> list[str]:
    return [f"{_what(hold)} was reserved late" for hold in _holds(history, pods) if hold.record.late]


def early(history: History, pods: Sequence[Pod]) -> list[str]:
    """The addresses whose hold began before their pod had ended, or was over too soon after that.

    Revisions tell what came first. The length is by the one clock of this machine, read by the leader when
    it notes the end, and by us after the release.
    """
    ends = {pod.metadata.uid: history.departures[pod.metadata.uid].revision for pod in pods}
    return [
        f"{_what(hold)} was released early"
        for hold in _holds(history, pods)
        if not (hold.noted and hold.noted > ends[hold.record.uid] and _lasted(hold))
    ]


def misshapen(segment: IPReservation) -> list[str]:
    """What no segment of ours may ever be."""
    entries, name = segment.spec.reserved_cidrs, segment.metadata.name
    held = [each for each in entries if canonical(each) == each]
    found = {
        f"segment {name} has an entry twice": len(set(entries)) < len(entries),
        f"segment {name} has {len(held)} addresses": len(held) > ENTRIES,
        f"segment {name} is too large": len(segment.metadata.annotations.get(RECORDS, "")) > SIZE,
        f"segment {name} has a malformed entry": held != entries,
    }
    return [what for what, is_so in found.items() if is_so]


def _holds(history: History, pods: Sequence[Pod]) -> list[Hold]:
    uids = {pod.metadata.uid for pod in pods}
    return [hold for hold in history.holds if hold.record.uid in uids]


def _lasted(hold: Hold) -> bool:
    assert hold.record.ended is not None
    assert hold.released is not None
    return hold.released - hold.record.ended >= HOLD


def _what(hold: Hold) -> str:
    return f"{hold.record.cidr} of {hold.record.namespace}/{hold.record.pod}"


@contextmanager
def judging(lab: Lab, reservations: Resource, client: Client | None = None) -> Iterator[Judge]:
    """Watch from now until the end of the block, by way of *client* if it is not the lab's own."""
    with watching(
        client or lab.client, {Resource("", "v1", "pods"): Pod, reservations: IPReservation}
    ) as observations:
        yield Judge(lab, observations)
