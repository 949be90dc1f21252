"""Was any address free that had to be reserved? By the revisions of one history of pods and IPReservations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from calico.segment import IPReservation, canonical
from dev.lab.watching import Observation, addresses
from kube.types import Pod
from settings import IPReservationSettings

MOST = IPReservationSettings().max_count
"""While no more are reserved, none is released: a storm is shorter than the reserve time."""


@dataclass(frozen=True)
class Judged:
    """*lost* says what went wrong; *peak* and *rest* count IPReservation objects, at most and in the end."""

    lost: list[str]
    peak: int
    rest: int


@dataclass
class _World:
    objects: dict[str, frozenset[str]] = field(default_factory=dict)
    reserved: Counter[str] = field(default_factory=Counter)
    """In how many objects each address is; in none is no entry."""
    gone: dict[str, str] = field(default_factory=dict)
    """The pods that are gone, by their addresses."""
    released: set[str] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)

    def end(self, pod: Pod) -> None:
        for cidr in addresses(pod):
            self.gone[cidr] = pod.metadata.name
            if cidr not in self.reserved:
                self.lost.append(f"{cidr} of {pod.metadata.name} was not reserved when the pod was gone")

    def write(self, name: str, entries: frozenset[str]) -> None:
        before = self.objects.get(name, frozenset())
        self.objects[name] = entries
        for cidr in entries - before:
            self._add(cidr)
        dropped = {cidr for cidr in before - entries if self._is_last(cidr)}
        if len(self.reserved) < MOST:
            self.lost += [
                f"{cidr} of {self.gone[cidr]} was released early" for cidr in dropped & self.gone.keys()
            ]
        self.released |= dropped

    def delete(self, name: str) -> None:
        self.write(name, frozenset())
        del self.objects[name]

    def _add(self, cidr: str) -> None:
        self.reserved[cidr] += 1
        if cidr in self.released and cidr in self.gone:
            self.lost.append(f"{cidr} of {self.gone[cidr]} was free for a while")

    def _is_last(self, cidr: str) -> bool:
        self.reserved[cidr] -= 1
        if is_last := not self.reserved[cidr]:
            del self.reserved[cidr]
        return is_last


def judged(observations: Iterable[Observation], namespace: str) -> Judged:
    """About the pods of *namespace*, by revisions, whatever the order in which two watches delivered them."""
    world, peak = _World(), 0
    for each in sorted(observations, key=lambda each: each.revision):
        found = each.object
        if isinstance(found, IPReservation) and each.gone:
            world.delete(found.metadata.name)
        elif isinstance(found, IPReservation):
            world.write(found.metadata.name, _entries(found))
        elif isinstance(found, Pod) and each.gone and found.metadata.namespace == namespace:
            world.end(found)
        peak = max(peak, len(world.objects))
    return Judged(world.lost, peak, len(world.objects))


def _entries(found: IPReservation) -> frozenset[str]:
    return frozenset(cidr for entry in found.spec.reserved_cidrs if (cidr := canonical(entry)))
