"""Calico's pools: how much of them is free, now and after a removal of pods, and who has an IP of them or had it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from calico.pools import BLOCKS, POOLS, IPAMBlock, IPPool, block_of, overlap, pools_of, range_of
from calico.reservations import GROUPS
from calico.segment import IPReservation
from cli.errors import unreadable
from cli.inventory import Inventory
from cli.output import Document, Part, Table, count_of, warning
from kube.errors import KubeError


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


def headroom(
    inventory: Inventory, segments: Sequence[IPReservation], reserving: Collection[str] = ()
) -> tuple[tuple[Headroom, ...], str]:
    """Of each pool, after a removal that reserves the IPs *reserving*; without any, why pools or blocks are not known.

    They are those of the first of Calico's groups that serves them.
    """
    of_calico = inventory.of_calico
    try:
        pools, blocks = inventory.cluster.together(
            partial(of_calico, POOLS, IPPool), partial(of_calico, BLOCKS, IPAMBlock)
        )
    except KubeError as error:
        failure = unreadable(error)
        return (), f"{failure} ({failure.way_out})"
    if pools is None or blocks is None:
        return (
            (),
            f"neither of {' and '.join(GROUPS)} serves Calico's {'pools' if pools is None else 'blocks'}",
        )
    going = [range_of(each) for each in set(reserving)]
    found = (
        Headroom(
            pool.name,
            pool.cidr,
            *pool.usage.figures,
            sum(overlap(each, pool.range) is not None for each in going),
        )
        for pool in pools_of(pools, [*filter(None, map(block_of, blocks))], segments)
    )
    return tuple(found), ""


def headroom_parts(pools: Sequence[Headroom], unknown: str) -> Iterator[Part]:
    if unknown:
        yield f"The headroom of Calico's pools is not known: {unknown}"
        return
    for each in pools:
        if each.to_be_reserved > each.free:
            yield warning(
                f"Pool {each.pool} has {count_of(each.free, 'free address', 'free addresses')}: replacements of"
                f" {count_of(each.to_be_reserved, 'pod')} may get none until reservations end."
            )
    columns = ("POOL", "CIDR", "ADDRESSES", "ASSIGNED", "RESERVED", "FREE", "RESERVED BY THIS", "FREE THEN")
    rows = [
        [*map(str, each.content.values()), str(max(0, each.free - each.to_be_reserved))] for each in pools
    ]
    yield Table(columns, rows)
