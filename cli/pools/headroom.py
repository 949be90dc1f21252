"""Calico's pools: how many addresses are assigned, reserved and free, now and after a removal of pods."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

from calico.segment import IPReservation
from cli.output import Document, Part, Table, warning
from kube.types import ObjectMeta, Value

Network = IPv4Network | IPv6Network
Range = tuple[int, int, int]
"""The IP version, the first address, and the one after the last."""


class IPPoolSpec(Value, frozen=True):
    cidr: str = ""
    disabled: bool = False


class IPPool(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: IPPoolSpec = IPPoolSpec()


class IPAMBlockSpec(Value, frozen=True):
    """*allocations* has an entry for each address, from the first on: null for one that is not assigned."""

    cidr: str = ""
    allocations: tuple[int | None, ...] = ()


class IPAMBlock(Value, frozen=True):
    spec: IPAMBlockSpec = IPAMBlockSpec()


@dataclass(frozen=True)
class PoolFacts:
    """*unknown* is why pools or blocks are not known; then there are none."""

    pools: Sequence[IPPool] = ()
    blocks: Sequence[IPAMBlock] = ()
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
    assigned, reserved = sorted(_assigned(facts.blocks)), _collapsed(facts.reservations)
    going = [_range(each) for each in set(reserving)]
    return tuple(_of_pool(each, assigned, reserved, going) for each in facts.pools if _is_used(each))


def parts(pools: Sequence[Headroom], unknown: str) -> Iterator[Part]:
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
    pool: IPPool,
    assigned: Sequence[tuple[int, int]],
    reserved: Sequence[Range],
    going: Sequence[Range],
) -> Headroom:
    whole = _range(pool.spec.cidr)
    taken = _count(assigned, whole)
    overlaps = [found for each in reserved if (found := _overlap(each, whole))]
    kept = sum(each[2] - each[1] - _count(assigned, each) for each in overlaps)
    size = whole[2] - whole[1]
    return Headroom(
        pool=pool.metadata.name,
        cidr=pool.spec.cidr,
        addresses=size,
        assigned=taken,
        reserved=kept,
        free=size - taken - kept,
        to_be_reserved=sum(_overlap(each, whole) is not None for each in going),
    )


def _assigned(blocks: Iterable[IPAMBlock]) -> Iterator[tuple[int, int]]:
    """The IP version and the address of each."""
    for block in blocks:
        version, first, _ = _range(block.spec.cidr)
        for number, held in enumerate(block.spec.allocations):
            if held is not None:
                yield version, first + number


def _collapsed(reservations: Iterable[IPReservation]) -> list[Range]:
    """No address is in two of them."""
    entries = [
        _range(entry)
        for each in reservations
        for entry in each.spec.reserved_cidrs
        if entry not in each.malformed
    ]
    found: list[Range] = []
    for version, first, end in sorted(entries):
        if found and found[-1][0] == version and first <= found[-1][2]:
            found[-1] = (version, found[-1][1], max(end, found[-1][2]))
        else:
            found.append((version, first, end))
    return found


def _range(cidr: str) -> Range:
    network: Network = ip_network(cidr, strict=False)
    first = int(network.network_address)
    return network.version, first, first + network.num_addresses


def _overlap(one: Range, other: Range) -> Range | None:
    first, end = max(one[1], other[1]), min(one[2], other[2])
    return (one[0], first, end) if one[0] == other[0] and first < end else None


def _count(addresses: Sequence[tuple[int, int]], within: Range) -> int:
    version, first, end = within
    return bisect_left(addresses, (version, end)) - bisect_left(addresses, (version, first))


def _is_used(pool: IPPool) -> bool:
    return not pool.spec.disabled and bool(pool.spec.cidr)
