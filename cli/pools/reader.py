"""Read Calico's pools and the blocks of their addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from calico.pools import BLOCKS, POOLS, IPAMBlock, IPPool, block_of, located
from calico.reservations import GROUPS
from calico.segment import IPReservation
from cli.cluster import Cluster
from cli.errors import unreadable
from cli.pools.headroom import PoolFacts
from kube.errors import KubeError

T = TypeVar("T")


def pools_of(cluster: Cluster, segments: Sequence[IPReservation]) -> PoolFacts:
    """Of the first of Calico's groups that serves them; one that may not be read, or is not there, is *unknown*."""
    try:
        found = cluster.read_all(
            {
                "pools": lambda: _of_calico(cluster, POOLS, IPPool),
                "blocks": lambda: _of_calico(cluster, BLOCKS, IPAMBlock),
            }
        )
    except KubeError as error:
        return PoolFacts(unknown=str(unreadable(error)) + f" ({unreadable(error).way_out})")
    for name, each in found.items():
        if each is None:
            return PoolFacts(unknown=f"neither of {' and '.join(GROUPS)} serves Calico's {name}")
    return PoolFacts(found["pools"], [block_of(each) for each in found["blocks"]], segments)


def _of_calico(cluster: Cluster, plural: str, kind: type[T]) -> Sequence[T] | None:
    resource = located(cluster.client, plural)
    return cluster.client.list(resource, type=kind).items if resource else None
