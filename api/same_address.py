"""The promise that a StatefulSet's pod gets the addresses of the one whose place it takes, while they are reserved.

Calico gives a pod the addresses that its annotation names, reserved or not (libcalico-go, ``lib/ipam/ipam.go``:
AssignIP does not ask for reservations). Who else could use them decides at its admission. Until the pod has them,
they stay reserved; once it has them, their reservations end. A pod that does not get them must not ask for them any
longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from api.ip_reservation import cidrs_of
from calico.pools import IPAMConfiguration, IPPool, overlap, range_of, reserved_ranges
from calico.segment import IPReservation, Record, canonical
from kube.types import ObjectMeta, OwnerReference, Pod
from settings import IPReservationSettings

SAME_ADDRESS = "drawbridge.io/same-address"
"""The annotation by which a pod or its namespace opts out: "false"."""
SAME_ADDRESS_FROM = "drawbridge.io/same-address-from"
"""On a pod to which addresses were promised: `<uid of the former pod>=<value of IP_ADDRS>`."""
IP_ADDRS = "cni.projectcalico.org/ipAddrs"
POOLS_OF_POD = ("cni.projectcalico.org/ipv4pools", "cni.projectcalico.org/ipv6pools")
"""Which a namespace may have for its pods, too."""
ASKS_ITSELF = (IP_ADDRS, "cni.projectcalico.org/ipAddrsNoIpam", *POOLS_OF_POD)
"""Annotations of users, read by Calico: they decide where the pod's addresses are from."""

MARGIN, SHARE = 30.0, 4
"""Seconds of a reservation's last time, at most that part of all of it, in which nothing is promised.

The leader may release it before it knows of the pod; clocks differ, too.
"""


class Outcome(StrEnum):
    """What was decided about a pod."""

    PROMISED = "promised"
    NOT_RESERVED = "not-reserved"
    INCOMPLETE = "incomplete"
    OF_OTHERS = "of-others"
    TO_BE_RELEASED = "to-be-released"
    NEARLY_OVER = "nearly-over"
    STRICT_AFFINITY = "strict-affinity"
    NODE_SELECTOR = "node-selector"
    NO_POOL = "no-pool"
    DISABLED_POOL = "disabled-pool"
    COOLDOWN = "cooldown"
    NOT_READ = "not-read"


@dataclass(frozen=True)
class Place:
    """In a StatefulSet: pods of that name take it one after the other."""

    namespace: str
    pod: str
    owner_uid: str

    def is_of(self, record: Record) -> bool:
        return bool(self.owner_uid) and self.owner_uid == record.owner_uid and self.has_name_of(record)

    def has_name_of(self, record: Record) -> bool:
        return (record.namespace, record.pod) == (self.namespace, self.pod)


@dataclass(frozen=True)
class Promise:
    """The addresses of the *former* pod, which is a uid."""

    former: str
    addresses: tuple[str, ...]

    @property
    def cidrs(self) -> tuple[str, ...]:
        return tuple(cidr for address in self.addresses if (cidr := canonical(address)))

    @property
    def annotations(self) -> Mapping[str, str]:
        value = msgspec.json.encode(self.addresses).decode()
        return {IP_ADDRS: value, SAME_ADDRESS_FROM: f"{self.former}={value}"}


def stateful_set_of(pod: ObjectMeta) -> OwnerReference | None:
    owner = pod.controller
    return owner if owner and (owner.api_version, owner.kind) == ("apps/v1", "StatefulSet") else None


def promise_of(annotations: Mapping[str, str]) -> Promise | None:
    """None where Calico is not asked for what was promised: that is withdrawn, or a user asks for something else."""
    former, _, value = annotations.get(SAME_ADDRESS_FROM, "").partition("=")
    if not former or annotations.get(IP_ADDRS) != value:
        return None
    try:
        return Promise(former, msgspec.json.decode(value, type=tuple[str, ...]))
    except msgspec.MsgspecError:
        return None


def predecessor_of(annotations: Mapping[str, str]) -> str:
    """The uid of the pod whose addresses were promised; "" for none."""
    return annotations.get(SAME_ADDRESS_FROM, "").partition("=")[0]


def left_alone(
    pod: Pod, namespace_annotations: Mapping[str, str], settings: IPReservationSettings
) -> str | None:
    """Why nothing can be promised to *pod*, a new one; None when its reservations decide."""
    annotations = pod.metadata.annotations
    if not (settings.enabled and settings.same_address.enabled):
        return "same addresses are disabled"
    if stateful_set_of(pod.metadata) is None:
        return "no pod of a StatefulSet"
    if pod.spec.host_network:
        return "host network"
    if any(name in annotations for name in ASKS_ITSELF):
        return "it asks Calico for an address or pool itself"
    if any(name in namespace_annotations for name in POOLS_OF_POD):
        return "its namespace names the pools of its pods"
    choice = annotations.get(SAME_ADDRESS) or namespace_annotations.get(SAME_ADDRESS, "")
    return "opted out" if choice.lower() == "false" else None


def decide(
    place: Place, segments: Sequence[IPReservation], settings: IPReservationSettings, now: datetime
) -> Promise | Outcome:
    """The addresses that the last pod of *place* had in the end, all of them, or why none is promised."""
    own = [record for record in _records(segments) if place.is_of(record)]
    if not own:
        return Outcome.NOT_RESERVED
    former = max(own, key=lambda record: record.last_asked).uid
    found = [record for record in own if record.uid == former]
    cidrs = sorted(_last(found), key=range_of)  # IPv4 first, as Calico gives them
    held = [record for record in found if record.cidr in cidrs]
    if len(cidrs) < max(record.addresses for record in held):
        return Outcome.INCOMPLETE
    if any(_is_of_others(cidr, place, segments) for cidr in cidrs):
        return Outcome.OF_OTHERS
    ours = [segment for segment in segments if segment.ours]
    if any(cidr in segment.to_be_released.values() for cidr in cidrs for segment in ours):
        return Outcome.TO_BE_RELEASED
    if any(_is_nearly_over(record, settings, now) for record in held):
        return Outcome.NEARLY_OVER
    return Promise(former, tuple(cidr.partition("/")[0] for cidr in cidrs))


def _last(records: Sequence[Record]) -> Iterable[str]:
    """Of one pod, the last address of each family: a new sandbox gets others, and Calico no more of them at a time."""
    ended = {record.cidr: record.ended for record in records if record.ended}
    in_turn = sorted(
        records, key=lambda record: (record.cidr not in ended, ended.get(record.cidr, record.at))
    )
    return {range_of(record.cidr)[0]: record.cidr for record in in_turn}.values()


@dataclass(frozen=True)
class CalicoIPAM:
    """How Calico is configured to assign addresses, and to which nodes."""

    configuration: IPAMConfiguration = field(default_factory=IPAMConfiguration)
    pools: Sequence[IPPool] = ()


def refusal(
    promise: Promise, segments: Sequence[IPReservation], calico: CalicoIPAM, now: datetime
) -> Outcome | None:
    """Why Calico would refuse what *decide* found, or give it where it should not be: on the pod's node, or now."""
    configuration = calico.configuration
    if configuration.strict_affinity:
        return Outcome.STRICT_AFFINITY
    if calico.pools and not all(any(pool.has(each) for pool in calico.pools) for each in promise.addresses):
        return Outcome.NO_POOL
    pools = [pool for pool in calico.pools if any(map(pool.has, promise.addresses))]
    if any(pool.range is None for pool in pools):
        return Outcome.DISABLED_POOL
    if not all(pool.is_for_all_nodes for pool in pools):
        return Outcome.NODE_SELECTOR
    found = (record for record in _records(segments) if record.uid == promise.former)
    held = [record for record in found if record.cidr in promise.cidrs]
    may_refuse = any(_may_be_in_cooldown(record, configuration.cooldown, now) for record in held)
    return Outcome.COOLDOWN if may_refuse else None


def _may_be_in_cooldown(record: Record, cooldown: int, now: datetime) -> bool:
    """It begins before the pod is gone; when that was is noted later, or not yet."""
    return bool(cooldown) and (record.ended is None or now - record.ended < timedelta(seconds=cooldown))


def _records(segments: Iterable[IPReservation]) -> Iterator[Record]:
    return (record for segment in segments if segment.ours for record in segment.records)


def _is_of_others(cidr: str, place: Place, segments: Sequence[IPReservation]) -> bool:
    """Whether it is reserved for another pod, or by another client: Calico would give it all the same."""
    if any(record.cidr == cidr and not place.has_name_of(record) for record in _records(segments)):
        return True
    of_others = reserved_ranges(segment for segment in segments if not segment.ours)
    return any(overlap(range_of(cidr), reserved) for reserved in of_others)


def _is_nearly_over(record: Record, settings: IPReservationSettings, now: datetime) -> bool:
    margin = min(MARGIN, settings.duration / SHARE)
    left = timedelta(seconds=settings.duration - margin)
    return record.ended is not None and now - record.ended >= left


class Ending(StrEnum):
    """How a promise ended."""

    KEPT = "kept"
    OTHER_ADDRESS = "other-address"
    DROPPED = "dropped"


def is_waited_for(record: Record, pod: Pod) -> bool:
    """Whether *pod* may still come up with the address of *record*."""
    promise = open_promise(pod)
    return promise is not None and _is_successor(record, pod) and record.cidr in promise.cidrs


def is_kept(record: Record, pod: Pod) -> bool:
    """Whether *pod*, which takes the place of that of *record*, has its address."""
    has_it = record.cidr in cidrs_of(pod) and not pod.finished
    return has_it and _is_successor(record, pod)


def open_promise(pod: Pod) -> Promise | None:
    """Of a pod that has no address yet and may get one."""
    if pod.terminating or pod.finished or cidrs_of(pod):
        return None
    return promise_of(pod.metadata.annotations)


def plan_ending(pod: Pod, promise: Promise, waited: float, settings: IPReservationSettings) -> Ending | float:
    """How the *promise* has ended, or the seconds until it has to be decided again.

    *waited* are the seconds for which the pod has had its node, or has been without one.
    """
    if addresses := cidrs_of(pod):
        return Ending.KEPT if set(promise.cidrs) <= set(addresses) else Ending.OTHER_ADDRESS
    has_node = bool(pod.spec.node_name)
    left = (settings.same_address.timeout if has_node else settings.duration) - waited
    return left if left > 0 else Ending.DROPPED


def _is_successor(record: Record, pod: Pod) -> bool:
    at = pod.metadata
    is_in_its_place = (at.namespace, at.name) == (record.namespace, record.pod)
    return bool(record.uid) and is_in_its_place and predecessor_of(at.annotations) == record.uid
