"""What is known of Calico's pools for one decision: pure functions of pools, blocks and reservations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from calico.address_ranges import Range, overlap, range_of
from calico.pools import Assigned, Block, IPPool, Usage, reserved_ranges, usage_of
from calico.segment import IPReservation


@dataclass(frozen=True)
class Pool:
    """A pool that gives addresses.

    *room* is how many of them are neither assigned nor reserved by others, *ours* those of them in segments of ours,
    as CIDRs: without us, all of the room would be free.
    """

    name: str
    range: Range
    usage: Usage
    room: int
    ours: frozenset[str]


def pools_of(
    pools: Sequence[IPPool], blocks: Sequence[Block], reservations: Sequence[IPReservation]
) -> Sequence[Pool]:
    assigned, everything = Assigned(blocks), reserved_ranges(reservations)
    of_others = reserved_ranges(each for each in reservations if not each.ours)
    ours = {record.cidr for each in reservations if each.ours for record in each.records}
    unassigned = [(cidr, held) for cidr in ours if not assigned.count(held := range_of(cidr))]
    return [
        Pool(
            each.metadata.name,
            whole,
            usage_of(whole, assigned, everything),
            usage_of(whole, assigned, of_others).free,
            frozenset(_only_ours(whole, unassigned, of_others)),
        )
        for each in pools
        if (whole := each.range) is not None
    ]


def _only_ours(whole: Range, ours: Sequence[tuple[str, Range]], of_others: Sequence[Range]) -> Iterator[str]:
    """Those of the pool that no other reservation has, too: their release makes them free."""
    others = [found for each in of_others if (found := overlap(each, whole))]
    for cidr, held in ours:
        if overlap(held, whole) and not any(overlap(held, each) for each in others):
            yield cidr
