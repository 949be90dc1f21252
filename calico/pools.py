"""Calico's pools: how many of their addresses are assigned, reserved and free, and who has which.

An IPPool is a range. Calico gives nodes blocks of it, and an IPAMBlock says which of its addresses are assigned, with
what Calico noted at each assignment.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_network

import msgspec
from msgspec.structs import replace

from calico.reservations import AUTO, GROUPS, first_served, left_until, resource_in
from calico.segment import IPReservation
from kube.client import Client, Resource
from kube.types import Condition, ObjectMeta, Value, slim
from runtime import time

Range = tuple[int, int, int]
"""The IP version, the first address, and the one after the last."""


# Each pass of the leader that knows pools asks for all that is reserved, also by others.
@lru_cache(maxsize=65536)
def range_of(cidr: str) -> Range:
    """The whole network, also where *cidr* has bits of a host; ValueError when it is none."""
    network = ip_network(cidr, strict=False)
    first = int(network.network_address)
    return network.version, first, first + network.num_addresses


def range_if_any(cidr: str) -> Range | None:
    """None when *cidr*, which any client may have written, is none."""
    try:
        return range_of(cidr)
    except ValueError:
        return None


def size_of(whole: Range) -> int:
    return whole[2] - whole[1]


def overlap(one: Range, other: Range) -> Range | None:
    first, end = max(one[1], other[1]), min(one[2], other[2])
    return (one[0], first, end) if one[0] == other[0] and first < end else None


def collapsed(ranges: Iterable[Range]) -> Sequence[Range]:
    """The same addresses, none in two of them, in order."""
    found: list[Range] = []
    for version, first, end in sorted(ranges):
        if found and found[-1][0] == version and first <= found[-1][2]:
            found[-1] = (version, found[-1][1], max(end, found[-1][2]))
        else:
            found.append((version, first, end))
    return found


def near(within: Range, ranges: Sequence[Range]) -> slice:
    """Of *ranges*, which are in order and have nothing in common, those that may have something *within* another."""
    version, first, end = within
    begin = max(0, bisect_right(ranges, (version, first, math.inf)) - 1)
    return slice(begin, bisect_left(ranges, (version, end, 0), begin))


POOLS, BLOCKS = "ippools", "ipamblocks"
WORKLOAD = "Workload"
"""The use of a pool for pods; one that names no use has it, too."""
NOT_ALLOCATABLE = ("Allocatable", "False")


class IPPoolSpec(Value, frozen=True):
    cidr: str = ""
    disabled: bool = False
    block_size: int = 0
    node_selector: str = ""
    ipip_mode: str = ""
    allowed_uses: tuple[str, ...] = ()


class IPPoolStatus(Value, frozen=True):
    conditions: tuple[Condition, ...] = ()


class IPPool(Value, frozen=True):
    """One that is deleted stays until all of its addresses are free."""

    metadata: ObjectMeta = ObjectMeta()
    spec: IPPoolSpec = IPPoolSpec()
    status: IPPoolStatus = IPPoolStatus()

    @property
    def range(self) -> Range | None:
        """None for a pool that gives pods no addresses: it is switched off, for other uses, or has no CIDR."""
        uses = self.spec.allowed_uses or (WORKLOAD,)
        return None if self._is_off or WORKLOAD not in uses else range_if_any(self.spec.cidr)

    @property
    def _is_off(self) -> bool:
        """As Calico's allocator has it; from 3.32 on, its controller of pools has a say, where two overlap."""
        said = ((each.type, each.status) for each in self.status.conditions)
        return self.spec.disabled or self.metadata.deletion_timestamp is not None or NOT_ALLOCATABLE in said

    @property
    def is_for_all_nodes(self) -> bool:
        return self.spec.node_selector.strip() in ("", "all()")

    @property
    def has_ip_in_ip(self) -> bool:
        return self.spec.ipip_mode not in ("", "Never")

    def has(self, ip: str) -> bool:
        """Also while it is disabled: its addresses stay with their pods."""
        whole = range_if_any(self.spec.cidr)
        return whole is not None and overlap(whole, range_of(ip)) is not None


class Attribute(Value, frozen=True):
    """*released_at* is set while the address cools down: released, but not free yet (Calico 3.33)."""

    handle_id: str | None = msgspec.field(default=None, name="handle_id")
    secondary: dict[str, str] | None = None
    released_at: str | None = None


class IPAMBlockSpec(Value, frozen=True):
    """*allocations* has an entry for each address, from the first on: the number of its attribute, or null."""

    cidr: str = ""
    allocations: tuple[int | None, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    strict_affinity: bool = msgspec.field(default=False, name="strictAffinity")

    def attribute_of(self, place: int) -> Attribute | None:
        """Of the address at *place* in the block; None for one that is not assigned."""
        index = self.allocations[place] if place < len(self.allocations) else None
        if index is None:
            return None
        return self.attributes[index] if index < len(self.attributes) else Attribute()


class IPAMBlock(Value, frozen=True):
    """As the API server serves it; :class:`Block` is what is kept of it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: IPAMBlockSpec = IPAMBlockSpec()


_POOL = msgspec.json.Decoder(IPPool)
_BLOCK = msgspec.json.Decoder(IPAMBlock)


@dataclass(frozen=True, slots=True)
class Block:
    """A range with one bit of *assigned* for each address, the lowest for the first: a /26 needs one machine word.

    Of a *strict* one, no other node gets addresses.
    """

    metadata: ObjectMeta
    range: Range
    assigned: int
    strict: bool = False

    def count(self, within: Range) -> int:
        """Assigned addresses *within* a range."""
        found = overlap(self.range, within)
        if found is None:
            return 0
        return (self.assigned >> (found[1] - self.range[1]) & ((1 << size_of(found)) - 1)).bit_count()


def block_of(block: IPAMBlock) -> Block | None:
    """None when its CIDR is none."""
    if (whole := range_if_any(block.spec.cidr)) is None:
        return None
    assigned = sum(1 << place for place, held in enumerate(block.spec.allocations) if held is not None)
    return Block(slim(block.metadata), whole, assigned, block.spec.strict_affinity)


def decode_pool(encoded: msgspec.Raw) -> IPPool:
    """MsgspecError when it cannot be read."""
    pool = _POOL.decode(encoded)
    return replace(pool, metadata=slim(pool.metadata))


def decode_block(encoded: msgspec.Raw) -> Block:
    """MsgspecError when it cannot be read."""
    if (block := block_of(_BLOCK.decode(encoded))) is None:
        raise msgspec.ValidationError("spec.cidr is no CIDR")
    return block


def located(
    client: Client, plural: str, api_version: str = AUTO, *, timeout: float | None = None
) -> Resource | None:
    """In the first of Calico's groups that serves *plural*, None in neither: Calico's API server has no blocks.

    With the *api_version* of the CRDs, Calico's API server is not asked.
    """
    groups = GROUPS[1:] if api_version == GROUPS[1] else GROUPS
    return first_served(client, [resource_in(group, plural) for group in groups], timeout)


class Assigned:
    """The addresses that *blocks* say are assigned."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._blocks = sorted(blocks, key=lambda block: block.range)
        self._ranges = [block.range for block in self._blocks]

    def count(self, within: Range) -> int:
        return sum([block.count(within) for block in self._blocks[near(within, self._ranges)]])


@dataclass(frozen=True)
class Usage:
    """Addresses of a pool: those *reserved* are not assigned, the *free* ones are neither."""

    addresses: int
    assigned: int
    reserved: int

    @property
    def free(self) -> int:
        return self.addresses - self.assigned - self.reserved

    @property
    def figures(self) -> tuple[int, int, int, int]:
        return self.addresses, self.assigned, self.reserved, self.free


def usage_of(whole: Range, assigned: Assigned, reserved: Sequence[Range]) -> Usage:
    """Of the addresses of *whole*; *reserved* are collapsed."""
    overlaps = (found for held in reserved[near(whole, reserved)] if (found := overlap(held, whole)))
    kept = sum(size_of(found) - assigned.count(found) for found in overlaps)
    return Usage(size_of(whole), assigned.count(whole), kept)


def reserved_ranges(reservations: Iterable[IPReservation]) -> Sequence[Range]:
    """What Calico assigns to no pod; no address is in two of them."""
    found: list[Range] = []
    for segment in reservations:
        malformed = {*segment.malformed}
        found += [range_of(entry) for entry in segment.spec.reserved_cidrs if entry not in malformed]
    return collapsed(found)


@dataclass(frozen=True)
class Pool:
    """A pool that gives addresses.

    *room* is how many of them are neither assigned nor reserved by others, *ours* those of them in segments of ours,
    as CIDRs: without us, all of the room would be free. Where it *is_strict*, no node can use what others have free.
    """

    name: str
    cidr: str
    range: Range
    usage: Usage
    room: int
    ours: frozenset[str]
    is_strict: bool = False


def pools_of(
    pools: Iterable[IPPool], blocks: Sequence[Block], reservations: Sequence[IPReservation]
) -> Sequence[Pool]:
    assigned, everything = Assigned(blocks), reserved_ranges(reservations)
    of_others = reserved_ranges(segment for segment in reservations if not segment.ours)
    ours = {record.cidr for segment in reservations if segment.ours for record in segment.records}
    only_ours = [
        (cidr, held)
        for cidr in ours
        if not assigned.count(held := range_of(cidr))
        and not any(overlap(held, other) for other in of_others[near(held, of_others)])
    ]
    return [
        Pool(
            pool.metadata.name,
            pool.spec.cidr,
            whole,
            usage_of(whole, assigned, everything),
            usage_of(whole, assigned, of_others).free,
            frozenset(cidr for cidr, held in only_ours if overlap(held, whole)),
            any(block.strict and overlap(block.range, whole) for block in blocks),
        )
        for pool in pools
        if (whole := pool.range) is not None
    ]


CONFIGURATIONS = (
    resource_in(GROUPS[0], "ipamconfigurations"),
    resource_in(GROUPS[1], "ipamconfigs"),
)
"""Where it is set: by the group of Calico that is served, the first of these."""
NAME = "default"
"""Of the one object."""
COOLDOWN = "ipCooldownSeconds"


class IPAMConfiguration(Value, frozen=True):
    """*strict_affinity*: a node may take only addresses of blocks that it has; by default it may borrow those of
    others. *cooldown*: for so many seconds, at most 1200, Calico gives a released address to no pod, not even to one
    that asks for it; 3.33 is its first version that knows this."""

    strict_affinity: bool = False
    cooldown: int = msgspec.field(default=0, name=COOLDOWN)


class _Configured(Value, frozen=True):
    spec: IPAMConfiguration = IPAMConfiguration()


def ipam_configuration(client: Client, api_version: str = AUTO, *, timeout: float) -> IPAMConfiguration:
    """Its defaults where there is none. *timeout*, in seconds, is for all calls together. KubeError."""
    end = time.monotonic() + timeout
    candidates = CONFIGURATIONS[1:] if api_version == GROUPS[1] else CONFIGURATIONS
    if (resource := first_served(client, candidates, timeout)) is None:
        return IPAMConfiguration()
    found = client.find(resource, NAME, type=_Configured, timeout=left_until(end))
    return found.spec if found else IPAMConfiguration()
