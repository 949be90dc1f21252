"""Ranges of addresses, as CIDRs name them, and arithmetic with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import ip_network

Range = tuple[int, int, int]
"""The IP version, the first address, and the one after the last."""


# Each pass of the leader that knows pools asks for all that is reserved.
@lru_cache(maxsize=16384)
def range_of(cidr: str) -> Range:
    """The whole network, also where *cidr* has bits of a host; ValueError when it is none."""
    network = ip_network(cidr, strict=False)
    first = int(network.network_address)
    return network.version, first, first + network.num_addresses


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
