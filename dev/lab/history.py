"""What two watches saw, folded into when each pod went and while each address was held.

Pods and IPReservations live in one etcd: their resourceVersions are revisions of one history and decide which
came first, whatever the clocks say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from calico.segment import IPReservation, Record, canonical
from healthchecker.checker import Deployment
from kube.types import Node, Pod

Seen = Pod | IPReservation | Node | Deployment | dict[str, Any]


def version_of(thing: Seen) -> str:
    """Its resourceVersion."""
    if isinstance(thing, dict):
        return str(thing["metadata"]["resourceVersion"])
    return thing.metadata.resource_version


@dataclass(frozen=True)
class Observation:
    """One object as a watch delivered it, at *seen* by our own clock."""

    object: Seen
    gone: bool
    seen: datetime

    @property
    def revision(self) -> int:
        return int(version_of(self.object))


@dataclass(frozen=True)
class Departure:
    """The end of a pod object."""

    pod: Pod
    revision: int
    seen: datetime


@dataclass(frozen=True)
class Hold:
    """One address, standing in some IPReservation from revision *since* and, once that is over, to *until*.

    *noted* is the revision at which its record began to say when its pod ended.
    """

    record: Record
    since: int
    noted: int | None = None
    until: int | None = None
    released: datetime | None = None

    def covers(self, revision: int) -> bool:
        return self.since < revision and (self.until is None or revision < self.until)


@dataclass
class History:
    pods: dict[str, Pod] = field(default_factory=dict)
    """The pods that are there, by uid."""
    departures: dict[str, Departure] = field(default_factory=dict)
    """The pods that are gone, by uid."""
    holds: list[Hold] = field(default_factory=list)
    """In the order in which they began."""
    reserved_up_to: int = 0
    """The revision of the last thing heard of the reservations."""
    _segments: dict[str, IPReservation] = field(default_factory=dict)

    def add(self, observation: Observation) -> None:
        if isinstance(observation.object, Pod):
            self._add_pod(observation.object, observation)
        elif isinstance(observation.object, IPReservation):
            self._add_segment(observation.object, observation)

    def running(self, namespace: str) -> list[Pod]:
        """Its pods that have an address and are not on their way out, by name."""
        found = [pod for pod in self.pods.values() if pod.metadata.namespace == namespace and _runs(pod)]
        return sorted(found, key=lambda pod: pod.metadata.name)

    def standing(self) -> list[Hold]:
        return [hold for hold in self.holds if hold.until is None]

    def holds_of(self, pod: Pod) -> list[Hold]:
        """All that were made for *pod*."""
        return [hold for hold in self.holds if hold.record.uid == pod.metadata.uid]

    def _add_pod(self, pod: Pod, observation: Observation) -> None:
        uid = pod.metadata.uid
        self.pods[uid] = pod
        if observation.gone:
            self.departures[uid] = Departure(self.pods.pop(uid), observation.revision, observation.seen)

    def _add_segment(self, segment: IPReservation, observation: Observation) -> None:
        self.reserved_up_to = max(self.reserved_up_to, observation.revision)
        self._segments[segment.metadata.name] = segment
        if observation.gone:
            del self._segments[segment.metadata.name]
        records = [record for each in self._segments.values() for record in each.records]
        # Of several records of an address one that says when its pod ended, as the leader goes by it.
        reserved = {each.cidr: each for each in sorted(records, key=lambda each: each.ended is not None)}
        self.holds = [_brought_up_to_date(hold, reserved, observation) for hold in self.holds]
        known = {hold.record.cidr for hold in self.standing()}
        self.holds += [
            Hold(record, observation.revision) for cidr, record in reserved.items() if cidr not in known
        ]


def addresses(pod: Pod) -> frozenset[str]:
    """Those of *pod*, as CIDRs."""
    return frozenset(cidr for address in pod.status.addresses if (cidr := canonical(address)))


def names(pods: Iterable[Pod]) -> list[str]:
    return [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods]


def _runs(pod: Pod) -> bool:
    return pod.status.phase == "Running" and bool(pod.status.addresses) and not pod.terminating


def _brought_up_to_date(hold: Hold, reserved: dict[str, Record], observation: Observation) -> Hold:
    if hold.until is not None:
        return hold
    record = reserved.get(hold.record.cidr)
    if record is None:
        return replace(hold, until=observation.revision, released=observation.seen)
    noted = (hold.noted or observation.revision) if record.ended else None
    return replace(hold, record=record, noted=noted)
