"""`drawbridge explain ip`: who has it, and had it, whether it is reserved, why, and until when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address, ip_network
from typing import Any

import msgspec
from msgspec.structs import replace

from api.ip_history import NAME as HISTORY
from api.ip_history import Former, History, StoredHistory
from api.same_address import Ending, Promise, Promises, open_promise, plan_ending, promises_of
from calico.address_ranges import overlap, range_of
from calico.pools import BLOCKS, POOLS, IPAMBlock, IPPool, located
from calico.segment import IPReservation, Record, canonical
from cli.errors import Failure, unreadable
from cli.explain.kinds import (
    Event,
    EventRow,
    Kind,
    event_table,
    events,
    events_of,
    objects_about,
    snapshot_of,
)
from cli.explain.prediction import Question, Snapshot, question_table, questions_about_pod
from cli.inventory import Inventory
from cli.ip_reservation.reservations import address_of, kept_by, segments_if_any, unmanaged_entries
from cli.ip_reservation.webhooks import lives_of, pod_of, records_of
from cli.output import Document, Part, Report, Table, duration, moment, title
from controllers.ip_reservation.release_planner import (
    Copy,
    Life,
    Pods,
    by_identity,
    is_over,
    merged,
    note_end,
)
from kube.errors import KubeError, NotFound
from kube.resources import CONFIG_MAPS, PODS, Selection
from kube.types import Pod, key_of
from settings import IPReservationSettings
from settings.ip_reservation import Pools as PoolSettings

OFF = "set ipReservation.pools.enabled, and ipReservation.pools.history to a time, for example 24h"
SIZES = {4: 26, 6: 122}
"""Calico's default lengths of the blocks of a pool."""
NOT_STORED = "the leader has not stored the end of its pod yet, or drops it if there never was such a pod"
Raw = dict[str, Any]


class Gap(Document, frozen=True):
    """No leader saw the blocks: who had the IP for a moment in between is not known."""

    begin: datetime
    end: datetime


class Past(Document, frozen=True):
    """*former* holders, the latest first: all since *complete_since*, but for gaps.

    *unknown* says why they are not known.
    """

    former: tuple[Former, ...] = ()
    complete_since: datetime | None = None
    gaps: tuple[Gap, ...] = ()
    unknown: str = ""


def past_of(history: History, settings: PoolSettings, ip: str, now: datetime) -> Past:
    begin = now - timedelta(seconds=settings.history)
    return Past(
        former=tuple(each for each in reversed(history.former) if each.ip == ip and each.until >= begin),
        complete_since=history.complete_since(settings.history, now),
        gaps=tuple(Gap(*each) for each in history.gaps if each[1] >= begin),
    )


def past_parts(found: Past) -> Iterator[Part]:
    if found.unknown:
        yield f"Who had it before is not known: {found.unknown}"
        return
    rows = [
        (f"{each.namespace}/{each.pod}".lstrip("/"), each.node, moment(each.since), moment(each.until))
        for each in found.former
    ]
    begun = moment(found.complete_since)
    yield Table(
        ("HAD IT BEFORE", "NODE", "FROM", "UNTIL"), rows, empty=f"No pod had it before, since {begun}."
    )
    if rows:
        yield f"All since {begun} are shown."
    if found.gaps:
        gaps = ", ".join(f"{moment(each.begin)} to {moment(each.end)}" for each in found.gaps)
        yield f"No leader followed the blocks from {gaps}: who had it only then is not known."


class Assignment(Document, frozen=True):
    """What Calico noted when it assigned the IP, and when it *released* it for its cooldown; empty where nothing."""

    pool: str
    pod: str
    node: str
    since: str
    handle: str
    released: str


@dataclass(frozen=True)
class AddressInCalico:
    """*found* is None for an IP that is not assigned, *pool* empty for one of no pool.

    *unknown* says why neither is known. *cooldown* is Calico's, in seconds; 0 for none, or one that is not known.
    """

    pool: str = ""
    found: Assignment | None = None
    unknown: str = ""
    cooldown: int = 0


def block_name(ip: str, size: int) -> str:
    """Of the block that has *ip*, in a pool with blocks of this length; 0 is the default."""
    network = ip_network(f"{ip}/{size or SIZES[ip_address(ip).version]}", strict=False)
    return str(network).replace(".", "-").replace(":", "-").replace("/", "-")


def assignment_of(block: IPAMBlock, ip: str, pool: str) -> Assignment | None:
    whole = range_of(block.spec.cidr)
    found = overlap(whole, range_of(ip))
    noted = block.spec.attribute_of(found[1] - whole[1]) if found else None
    if noted is None:
        return None
    about = noted.secondary or {}
    pod = "/".join(filter(None, (about.get("namespace"), about.get("pod"))))
    return Assignment(
        pool=pool,
        pod=pod,
        node=about.get("node", ""),
        since=about.get("timestamp", ""),
        handle=noted.handle_id or "",
        released=noted.released_at or "",
    )


class Reservation(Document, frozen=True):
    """*expires_at* is None while its time has not begun; *release* says when and why it is released."""

    ip: str
    namespace: str
    pod: str
    node: str
    owner: str
    reason: str
    reserved_at: datetime
    pod_ended: datetime | None
    expires_at: datetime | None
    release: str
    segments: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.pod}" if self.pod else ""


def reservations(
    segments: Sequence[IPReservation],
    chosen: Callable[[Record], bool],
    pods: Pods,
    settings: IPReservationSettings,
    now: datetime,
) -> Iterator[Reservation]:
    """Of the records that are *chosen*; of *pods*, lives and promises count."""
    others = unmanaged_entries(segments)
    for copies in by_identity([each for each in segments if each.ours]).values():
        stored = merged(copies)
        if chosen(stored):
            found = _reservation(copies, stored, pods, settings, now)
            kept = kept_by(stored.cidr, others)
            then = f"; {kept}, which Drawbridge does not manage, keeps it reserved then" if kept else ""
            yield replace(found, release=found.release + then)


def reservation_table(found: Sequence[Reservation]) -> Table:
    return Table(
        ("RESERVED", "POD", "BECAUSE IT WAS", "SINCE", "RELEASED", "EXPIRES AT", "SEGMENT"),
        [
            (
                each.ip,
                each.key,
                each.reason,
                f"{each.reserved_at:%Y-%m-%d %H:%M:%SZ}",
                each.release,
                moment(each.expires_at),
                " ".join(each.segments),
            )
            for each in found
        ],
        empty="Nothing is reserved.",
        wide=2,
    )


def unmanaged(segments: Iterable[IPReservation], ip: str) -> Iterator[str]:
    """The names of IPReservations of others that contain *ip*."""
    address = ip_address(ip)
    yield from dict.fromkeys(name for name, network in unmanaged_entries(segments) if address in network)


def _reservation(
    copies: Sequence[Copy], stored: Record, pods: Pods, settings: IPReservationSettings, now: datetime
) -> Reservation:
    noted = note_end(stored, pods, now)
    by_hand = any(stored.cidr in each.segment.to_be_released.values() for each in copies)
    return Reservation(
        ip=address_of(stored.cidr),
        namespace=stored.namespace,
        pod=stored.pod,
        node=stored.node,
        owner=stored.owner,
        reason=stored.reason,
        reserved_at=stored.at,
        pod_ended=stored.ended,
        expires_at=noted.ended and noted.ended + timedelta(seconds=settings.ip_reserve_time),
        release=_promised(stored, pods)
        or _release(stored, noted, pods.life_of(stored), settings, now, by_hand=by_hand),
        segments=tuple(sorted(each.segment.metadata.name for each in copies)),
    )


def _promised(record: Record, pods: Pods) -> str:
    if record.key in pods.promises.kept:
        return "the pod that took the place of its pod has it: the leader ends it in its next run"
    if record.key in pods.promises.waiting:
        return "it waits for the pod that takes the place of its pod, which was promised this address"
    return ""


def _release(
    stored: Record,
    noted: Record,
    life: Life,
    settings: IPReservationSettings,
    now: datetime,
    *,
    by_hand: bool,
) -> str:
    if life is Life.RUNNING:
        after = duration(settings.give_back_after)
        return (
            f"its pod still runs: it is given back {after} after the leader saw that the deletion was refused"
        )
    if noted.ended is None:
        return f"its pod is terminating: its {duration(settings.ip_reserve_time)} begin when it is gone"
    if by_hand:
        return "an operator asked for its release: the leader releases it in its next run"
    if is_over(noted, settings, now):
        return "its time is over: the leader releases it in its next run"
    left = (noted.ended - now).total_seconds() + settings.ip_reserve_time
    not_stored = "" if stored.ended else f"; {NOT_STORED}"
    return f"in {duration(left)}, {duration(settings.ip_reserve_time)} after its pod ended{not_stored}"


class Promised(Document, frozen=True):
    """A pod without an address, which asks Calico for *ips*; *until* is None where that is past, or does not end.

    The leader counts from when it has seen the pod, or its node: this is the earliest time.
    """

    pod: str
    node: str
    ips: tuple[str, ...]
    until: datetime | None
    ends: str


def promised(pods: Iterable[Pod], settings: IPReservationSettings, now: datetime) -> Iterator[Promised]:
    for pod in pods:
        if promise := open_promise(pod):
            until = _until(pod, promise, settings, now)
            ends = _ends(pod, until, settings)
            yield Promised(key_of(pod.metadata), pod.spec.node_name, promise.addresses, until, ends)


def promises_to(
    pods: Sequence[Pod], segments: Iterable[IPReservation], settings: IPReservationSettings
) -> Promises:
    """As the leader finds them: which of the records in *segments* wait for one of *pods*, or have ended by it."""
    if not settings.same_address.enabled:
        return Promises()
    records = [record for each in segments if each.ours for record in each.records]
    return promises_of(records, lambda record: [each for each in pods if _has_place_of(record, each)])


def lines(found: Iterable[Promised]) -> Iterator[str]:
    for each in found:
        where = f" on node {each.node}" if each.node else ""
        yield f"Promised to pod {each.pod}{where}: {' and '.join(each.ips)}, of its predecessor. {each.ends}"


def _has_place_of(record: Record, pod: Pod) -> bool:
    return (record.namespace, record.pod) == (pod.metadata.namespace, pod.metadata.name)


def _until(pod: Pod, promise: Promise, settings: IPReservationSettings, now: datetime) -> datetime | None:
    if not settings.same_address.enabled:
        return None
    waited = now - (_since(pod) or now)
    step = plan_ending(pod, promise, waited.total_seconds(), settings)
    return None if isinstance(step, Ending) else now + timedelta(seconds=step)


def _since(pod: Pod) -> datetime | None:
    """When it got its node, or was created."""
    if not pod.spec.node_name:
        return pod.metadata.creation_timestamp
    scheduled = [
        each for each in pod.status.conditions if (each.type, each.status) == ("PodScheduled", "True")
    ]
    return scheduled[0].last_transition_time if scheduled else pod.metadata.creation_timestamp


def _ends(pod: Pod, until: datetime | None, settings: IPReservationSettings) -> str:
    if not settings.same_address.enabled:
        return "ipReservation.sameAddress is off: the pod asks for it until you remove its annotation"
    if until is None:
        return "Its time is over: the leader ends it in its next run, and Calico then gives the pod any IP"
    after = (
        f"{duration(settings.same_address.timeout)} after it got its node"
        if pod.spec.node_name
        else f"{duration(settings.ip_reserve_time)} without a node"
    )
    return f"It asks Calico for it until {moment(until)}, {after}, or a little later: then it gets any IP"


class Holder(Document, frozen=True):
    """A pod that has the IP, and what would become of it."""

    pod: str
    node: str
    phase: str
    questions: tuple[Question, ...]


class IPExplanation(Report, frozen=True):
    """*counted* of *most* reservations are of pods that are gone: beyond that, the oldest is released first."""

    ip: str
    summary: str
    reservations: tuple[Reservation, ...]
    promised: tuple[Promised, ...]
    unmanaged: tuple[str, ...]
    holders: tuple[Holder, ...]
    counted: int
    most: int
    now: datetime
    events: tuple[EventRow, ...]
    pool: str
    assigned: Assignment | None
    assigned_unknown: str
    past: Past
    cooldown: int

    def parts(self, now: datetime) -> Iterator[Part]:
        yield title(self.summary)
        yield reservation_table(self.reservations)
        yield from lines(self.promised)
        if self.reservations:
            counted_of = f"{self.counted} of at most {self.most}"
            yield f"{counted_of} IPs are reserved for pods that are gone; beyond that, the oldest is released first."
        yield from _in_calico(self)
        yield from past_parts(self.past)
        for holder in self.holders:
            heading = f"Pod {holder.pod} has it, {holder.phase}, on node {holder.node}"
            yield question_table(holder.questions, heading)
        yield event_table(self.events, now)


def explain(inventory: Inventory, _namespace: str, address: str) -> IPExplanation:
    try:
        ip = str(ip_address(address))
    except ValueError:
        raise Failure(f"{address!r} is no IP address", "write for example 10.0.0.5") from None
    segments, cidr = segments_if_any(inventory), canonical(ip)
    records = [each for each in records_of(segments) if each.cidr == cidr]
    raw_pods = inventory.list(PODS, Raw, Selection(field_selector=f"status.podIP={ip}"))
    snapshot = snapshot_of(inventory, objects_about(inventory, raw_pods))
    settings, now = snapshot.settings.ip_reservation, snapshot.now
    assigned = address_in_calico(inventory, ip) if cidr else AddressInCalico()
    successors = _successors(inventory, records)
    pods = Pods(lives_of(inventory, records), {}, promises=promises_to(successors, segments, settings))
    found = tuple(reservations(segments, lambda record: record.cidr == cidr, pods, settings, now))
    promises = promised(successors, settings, now)
    others = tuple(unmanaged(segments, ip))
    holders = tuple(_holder(each, snapshot) for each in raw_pods)
    return IPExplanation(
        ip=ip,
        summary=_summary(ip, found, others, holders),
        reservations=found,
        promised=tuple(each for each in promises if cidr in map(canonical, each.ips)),
        unmanaged=others,
        holders=holders,
        counted=counted(segments),
        most=settings.ip_reserve_max_count,
        now=now,
        events=tuple(events(_events(inventory, segments, ip))),
        pool=assigned.pool,
        assigned=assigned.found,
        assigned_unknown=assigned.unknown,
        past=_past(inventory, ip),
        cooldown=assigned.cooldown,
    )


def address_in_calico(inventory: Inventory, address: str) -> AddressInCalico:
    """Reads the pools, one block, and Calico's configuration."""
    try:
        pools = inventory.of_calico(POOLS, IPPool) or ()
        pool = next((each for each in pools if each.has(address)), None)
        if pool is None:
            return AddressInCalico()
        found = _in_block(inventory, pool, address)
        cooldown = inventory.cluster.read({"": inventory.cooldown})[""]
        known = 0 if isinstance(cooldown, KubeError) else cooldown
        return AddressInCalico(pool.metadata.name, found, cooldown=known)
    except KubeError as error:
        return AddressInCalico(unknown=str(unreadable(error)))


def _in_block(inventory: Inventory, pool: IPPool, address: str) -> Assignment | None:
    resource = located(inventory.client, BLOCKS)
    if resource is None:
        return None
    try:
        block = inventory.get(resource, block_name(address, pool.spec.block_size), None, IPAMBlock)
    except NotFound:  # no node has it yet
        return None
    return assignment_of(block, address, pool.metadata.name)


def _past(inventory: Inventory, address: str) -> Past:
    """What cannot be read is unknown."""
    settings = inventory.settings.ip_reservation.pools
    if not settings.keeps_history:
        return Past(unknown=f"it is not kept: {OFF}")
    try:
        # A list by name: those who may list the settings of Drawbridge need no other permission.
        named = Selection(inventory.namespace, field_selector=f"metadata.name={HISTORY}")
        found = inventory.list(CONFIG_MAPS, StoredHistory, named)
        stored = next((each for each in found if each.ours), None)
        if stored is None:
            return Past(unknown="nothing is stored yet")
        return past_of(stored.history, settings, address, inventory.now())
    except KubeError as error:
        return Past(unknown=str(unreadable(error)))
    except ValueError as error:
        return Past(unknown=str(error))


def _events(inventory: Inventory, segments: Sequence[IPReservation], address: str) -> Sequence[Event]:
    """On segments, and on pods that it came to: they name their addresses."""
    if not segments:
        return ()
    found = [
        *events_of(inventory, None, **{"involvedObject.kind": "IPReservation"}),
        *events_of(inventory, None, reason="AddressSwapped"),
    ]
    return [event for event in found if address in event.message.replace(",", " ").split()]


def _successors(inventory: Inventory, records: Iterable[Record]) -> Sequence[Pod]:
    """The pods that have taken the places of StatefulSets' pods; without same addresses no record says of any."""
    places = {(record.namespace, record.pod) for record in records if record.owner_uid}
    found = [pod_of(inventory, *place) for place in sorted(places)]
    return [msgspec.convert(each, Pod) for each in found if each]


def counted(segments: Sequence[IPReservation]) -> int:
    """Addresses whose time runs."""
    records = map(merged, by_identity([each for each in segments if each.ours]).values())
    return len({each.cidr for each in records if each.ended})


def _in_calico(explained: IPExplanation) -> Iterator[Part]:
    found = explained.assigned
    if explained.assigned_unknown:
        yield f"What Calico has assigned it to is not known: {explained.assigned_unknown}"
    elif found and found.released:
        yield f"Calico's pool {found.pool} has released it at {found.released}: it is in its cooldown"
    elif found:
        holder = f"pod {found.pod}" if found.pod else found.handle or "no pod"
        since = f" since {found.since}" if found.since else ""
        yield f"Calico's pool {found.pool} has assigned it to {holder}, on node {found.node or 'unknown'}{since}"
    elif explained.pool:
        yield f"Calico's pool {explained.pool} has assigned it to no pod"
    if explained.cooldown:
        lasts = duration(explained.cooldown)
        yield f"Calico gives an IP to no pod for {lasts} after it was released (ipCooldownSeconds)"


def _holder(pod: Raw, snapshot: Snapshot) -> Holder:
    metadata = pod["metadata"]
    asked = tuple(each for each in questions_about_pod(pod, snapshot) if each.action != "create")
    return Holder(
        pod=f"{metadata['namespace']}/{metadata['name']}",
        node=pod.get("spec", {}).get("nodeName", ""),
        phase=pod.get("status", {}).get("phase", ""),
        questions=asked,
    )


def _summary(ip: str, found: Sequence[Reservation], others: Sequence[str], holders: Sequence[Holder]) -> str:
    if found:
        whose = ", ".join(dict.fromkeys(each.key or "no pod" for each in found))
        return f"{ip} is reserved for {whose}: {found[-1].release}"
    if others:
        return f"{ip} is reserved by {', '.join(others)}, not managed by Drawbridge"
    if not holders:
        return f"{ip} is not reserved, and no pod has it"
    return f"{ip} is not reserved: pod {' and '.join(each.pod for each in holders)} has it"


IP = Kind(
    "Who has an IP, and had it before, whether it is reserved, why, and until when.",
    explain,
    namespaced=False,
    argument="ADDRESS",
)
