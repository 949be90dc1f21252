"""Calico's pools: how much of them is free, now and after a removal of pods, and who has an IP of them or had it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address, ip_network

from api.ip_history import History
from calico.address_ranges import Range, overlap, range_of
from calico.pools import Assigned, AssignedBlock, Block, IPPool, reserved_ranges, usage_of
from calico.segment import IPReservation
from cli.output import Document, Part, Table, moment, warning
from settings.ip_reservation import Pools


@dataclass(frozen=True)
class PoolFacts:
    """*unknown* is why pools or blocks are not known; then there are none."""

    pools: Sequence[IPPool] = ()
    blocks: Sequence[Block] = ()
    reservations: Sequence[IPReservation] = ()
    unknown: str = ""


class Headroom(Document, frozen=True):
    """Addresses of a pool: *reserved* ones are not assigned, *to_be_reserved* ones still are.

    The pods that replace those that are removed get others: each of them costs a free one.
    """

    pool: str
    cidr: str
    addresses: int
    assigned: int
    reserved: int
    free: int
    to_be_reserved: int

    @property
    def is_short(self) -> bool:
        return self.to_be_reserved > self.free


def headroom(facts: PoolFacts, reserving: Iterable[str]) -> tuple[Headroom, ...]:
    """*reserving* are the IPs that a removal reserves."""
    assigned, reserved = Assigned(facts.blocks), reserved_ranges(facts.reservations)
    going = [range_of(each) for each in set(reserving)]
    return tuple(
        _of_pool(each, whole, assigned, reserved, going)
        for each in facts.pools
        if (whole := each.range) is not None
    )


def headroom_parts(pools: Sequence[Headroom], unknown: str) -> Iterator[Part]:
    if unknown:
        yield f"The headroom of Calico's pools is not known: {unknown}"
        return
    for each in pools:
        if each.is_short:
            yield warning(
                f"Pool {each.pool} has {each.free} free addresses: replacements of {each.to_be_reserved} pods"
                " may get none until reservations end."
            )
    columns = ("POOL", "CIDR", "ADDRESSES", "ASSIGNED", "RESERVED", "FREE", "RESERVED BY THIS", "FREE THEN")
    rows = [
        (each.pool, each.cidr, *map(str, _numbers(each)), str(max(0, each.free - each.to_be_reserved)))
        for each in pools
    ]
    yield Table(columns, rows)


def _numbers(each: Headroom) -> tuple[int, ...]:
    return each.addresses, each.assigned, each.reserved, each.free, each.to_be_reserved


def _of_pool(
    pool: IPPool, whole: Range, assigned: Assigned, reserved: Sequence[Range], going: Sequence[Range]
) -> Headroom:
    usage = usage_of(whole, assigned, reserved)
    return Headroom(
        pool=pool.metadata.name,
        cidr=pool.spec.cidr,
        addresses=usage.addresses,
        assigned=usage.assigned,
        reserved=usage.reserved,
        free=usage.free,
        to_be_reserved=sum(overlap(each, whole) is not None for each in going),
    )


OFF = "set ipReservation.pools.enabled, and ipReservation.pools.history to a time, for example 24h"


class FormerHolder(Document, frozen=True):
    """A pod that had the IP; for what is no pod, *namespace* is empty, and *pod* Calico's handle."""

    namespace: str
    pod: str
    node: str
    since: datetime | None
    until: datetime


class Gap(Document, frozen=True):
    """No leader saw the blocks: who had the IP for a moment in between is not known."""

    begin: datetime
    end: datetime


class Past(Document, frozen=True):
    """*former* holders, the latest first: all since *complete_since*, but for gaps.

    *unknown* says why they are not known.
    """

    former: tuple[FormerHolder, ...] = ()
    complete_since: datetime | None = None
    gaps: tuple[Gap, ...] = ()
    unknown: str = ""


def past_of(history: History, settings: Pools, ip: str, now: datetime) -> Past:
    begin = now - timedelta(seconds=settings.history)
    former = [each for each in history.former if each.ip == ip and each.until >= begin]
    return Past(
        former=tuple(
            FormerHolder(each.namespace, each.pod, each.node, each.since, each.until)
            for each in reversed(former)
        ),
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


SIZES = {4: 26, 6: 122}
"""Calico's default lengths of the blocks of a pool."""


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
    *past* are those that had it before.
    """

    ip: str
    pool: str = ""
    found: Assignment | None = None
    unknown: str = ""
    cooldown: int = 0
    past: Past = field(default_factory=Past)


def block_name(ip: str, size: int) -> str:
    """Of the block that has *ip*, in a pool with blocks of this length; 0 is the default."""
    network = ip_network(f"{ip}/{size or SIZES[ip_address(ip).version]}", strict=False)
    return str(network).replace(".", "-").replace(":", "-").replace("/", "-")


def assignment_of(block: AssignedBlock, ip: str, pool: str) -> Assignment | None:
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
