"""Calico's pools: how many of their addresses are assigned, reserved and free.

An IPPool is a range; Calico gives nodes blocks of it, and an IPAMBlock says which of its addresses are assigned.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from calico.address_ranges import Range, collapsed, overlap, range_of, size_of
from calico.reservations import AUTO, GROUPS
from calico.segment import IPReservation
from kube.client import Client, Resource
from kube.types import ObjectMeta, Value, complete
from runtime import time

POOLS, BLOCKS = "ippools", "ipamblocks"
LEAST = 0.05
"""Seconds for a last attempt."""


class IPPoolSpec(Value, frozen=True):
    cidr: str = ""
    disabled: bool = False
    block_size: int = 0
    node_selector: str = ""


class IPPool(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: IPPoolSpec = IPPoolSpec()

    @property
    def range(self) -> Range | None:
        """None for a pool that gives no addresses: it is disabled, or has no CIDR."""
        try:
            return None if self.spec.disabled else range_of(self.spec.cidr)
        except ValueError:
            return None

    @property
    def is_for_all_nodes(self) -> bool:
        return self.spec.node_selector.strip() in ("", "all()")

    def has(self, ip: str) -> bool:
        """Also while it is disabled: its addresses stay with their pods."""
        try:
            return overlap(range_of(self.spec.cidr), range_of(ip)) is not None
        except ValueError:
            return False


class IPAMBlockSpec(Value, frozen=True):
    """*allocations* has an entry for each address, from the first on: null for one that is not assigned."""

    cidr: str = ""
    allocations: tuple[int | None, ...] = ()


class IPAMBlock(Value, frozen=True):
    """As the API server serves it; :class:`Block` is what is kept of it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: IPAMBlockSpec = IPAMBlockSpec()


complete(IPPool, IPAMBlock)


@dataclass(frozen=True, slots=True)
class Block:
    """A range with one bit of *assigned* for each address, the lowest for the first: a /26 needs one machine word."""

    metadata: ObjectMeta
    range: Range
    assigned: int

    def count(self, within: Range) -> int:
        """Assigned addresses *within* a range."""
        found = overlap(self.range, within)
        if found is None:
            return 0
        return (self.assigned >> (found[1] - self.range[1]) & ((1 << size_of(found)) - 1)).bit_count()


def block_of(block: IPAMBlock) -> Block:
    """ValueError when its CIDR is none."""
    at = block.metadata
    kept = ObjectMeta(name=at.name, uid=at.uid, resource_version=at.resource_version)
    bits = (1 << number for number, held in enumerate(block.spec.allocations) if held is not None)
    return Block(kept, range_of(block.spec.cidr), sum(bits))


def decode_block(encoded: msgspec.Raw) -> Block:
    """MsgspecError when it cannot be read."""
    try:
        return block_of(_BLOCK.decode(encoded))
    except ValueError as error:
        raise msgspec.ValidationError(str(error)) from error


def decode_pool(encoded: msgspec.Raw) -> IPPool:
    """MsgspecError when it cannot be read."""
    found = _POOL.decode(encoded)
    at = found.metadata
    return IPPool(ObjectMeta(name=at.name, uid=at.uid, resource_version=at.resource_version), found.spec)


def ip_pools(client: Client, api_version: str = AUTO, *, timeout: float) -> Sequence[IPPool]:
    """None without Calico. *timeout*, in seconds, is for all calls together. KubeError."""
    end = time.monotonic() + timeout
    resource = located(client, POOLS, api_version, timeout=timeout)
    left = max(LEAST, end - time.monotonic())
    return client.list(resource, type=IPPool, timeout=left).items if resource else ()


def located(
    client: Client, plural: str, api_version: str = AUTO, *, timeout: float | None = None
) -> Resource | None:
    """In the first of Calico's groups that serves *plural*, None in neither: Calico's API server has no blocks.

    With the *api_version* of the CRDs, Calico's API server is not asked.
    """
    for each in GROUPS[1:] if api_version == GROUPS[1] else GROUPS:
        group, version = each.split("/")
        resource = Resource(group, version, plural, namespaced=False)
        if client.serves(resource, timeout=timeout):
            return resource
    return None


class Assigned:
    """The addresses that *blocks* say are assigned."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._blocks = sorted(blocks, key=lambda each: each.range)
        self._starts = [each.range[:2] for each in self._blocks]

    def count(self, within: Range) -> int:
        version, first, end = within
        begin = max(0, bisect_right(self._starts, (version, first)) - 1)
        beyond = bisect_left(self._starts, (version, end), begin)
        return sum([each.count(within) for each in self._blocks[begin:beyond]])


@dataclass(frozen=True)
class Usage:
    """Addresses of a pool: those *reserved* are not assigned, the *free* ones are neither."""

    addresses: int
    assigned: int
    reserved: int

    @property
    def free(self) -> int:
        return self.addresses - self.assigned - self.reserved


def usage_of(whole: Range, assigned: Assigned, reserved: Sequence[Range]) -> Usage:
    """Of the addresses of *whole*; no address is in two of *reserved*."""
    overlaps = (found for each in reserved if (found := overlap(each, whole)))
    kept = sum(size_of(each) - assigned.count(each) for each in overlaps)
    return Usage(size_of(whole), assigned.count(whole), kept)


def reserved_ranges(reservations: Iterable[IPReservation]) -> Sequence[Range]:
    """What Calico assigns to no pod; no address is in two of them."""
    found: list[Range] = []
    for each in reservations:
        malformed = {*each.malformed}
        found += [range_of(entry) for entry in each.spec.reserved_cidrs if entry not in malformed]
    return collapsed(found)


_POOL = msgspec.json.Decoder(IPPool)
_BLOCK = msgspec.json.Decoder(IPAMBlock)
