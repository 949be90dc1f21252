"""Read Calico's pools and the blocks of their addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from calico.pools import BLOCKS, POOLS, IPAMBlock, IPPool, block_of, located
from calico.reservations import GROUPS
from calico.segment import IPReservation
from cli.cluster import Cluster
from cli.errors import unreadable
from cli.pools.assignment import Assigned, AssignedBlock, Assignment, assignment_of, block_name
from cli.pools.headroom import PoolFacts
from kube.errors import KubeError, NotFound

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


def assigned(cluster: Cluster, ip: str) -> Assigned:
    """Reads the pools, and one block."""
    try:
        resource = located(cluster.client, POOLS)
        pools = cluster.client.list(resource, type=IPPool).items if resource else []
        pool = next((each for each in pools if each.has(ip)), None)
        if pool is None:
            return Assigned(ip)
        return Assigned(ip, pool.metadata.name, _in_block(cluster, pool, ip))
    except KubeError as error:
        return Assigned(ip, unknown=str(unreadable(error)))


def _in_block(cluster: Cluster, pool: IPPool, ip: str) -> Assignment | None:
    resource = located(cluster.client, BLOCKS)
    if resource is None:
        return None
    try:
        block = cluster.client.get(resource, block_name(ip, pool.spec.block_size), type=AssignedBlock)
    except NotFound:  # no node has it yet
        return None
    return assignment_of(block, ip, pool.metadata.name)
