"""Read Calico's pools, the blocks of their addresses, and who had these before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from calico.holders import AssignedBlock
from calico.ipam_config import ipam_configuration
from calico.pools import BLOCKS, POOLS, IPAMBlock, IPPool, block_of, located
from calico.reservations import GROUPS
from calico.segment import IPReservation
from cli.cluster import Cluster
from cli.errors import unreadable
from cli.pools.assignment import Assigned, Assignment, assignment_of, block_name
from cli.pools.headroom import PoolFacts
from cli.pools.history import OFF, Past, past_of
from controllers.ip_reservation.history import NAME as HISTORY
from controllers.ip_reservation.history import StoredHistory
from kube.errors import KubeError, NotFound
from kube.resources import CONFIG_MAPS
from settings.ip_reservation import Pools

T = TypeVar("T")
SECONDS = 30.0


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
    """Reads the pools, one block, and Calico's configuration."""
    try:
        resource = located(cluster.client, POOLS)
        pools = cluster.client.list(resource, type=IPPool).items if resource else []
        pool = next((each for each in pools if each.has(ip)), None)
        if pool is None:
            return Assigned(ip)
        found = _in_block(cluster, pool, ip)
        return Assigned(ip, pool.metadata.name, found, cooldown=_known_cooldown(cluster))
    except KubeError as error:
        return Assigned(ip, unknown=str(unreadable(error)))


def _known_cooldown(cluster: Cluster) -> int:
    """What is known of Calico does not depend on it."""
    try:
        return cooldown(cluster)
    except KubeError:
        return 0


def _in_block(cluster: Cluster, pool: IPPool, ip: str) -> Assignment | None:
    resource = located(cluster.client, BLOCKS)
    if resource is None:
        return None
    try:
        block = cluster.client.get(resource, block_name(ip, pool.spec.block_size), type=AssignedBlock)
    except NotFound:  # no node has it yet
        return None
    return assignment_of(block, ip, pool.metadata.name)


def cooldown(cluster: Cluster) -> int:
    """Seconds for which Calico gives a released IP to no pod, 0 for none. KubeError."""
    return ipam_configuration(cluster.client, timeout=SECONDS).cooldown


def past(cluster: Cluster, namespace: str, settings: Pools, ip: str, now: datetime) -> Past:
    """Of the installation in *namespace*; what cannot be read is unknown."""
    if not settings.keeps_history:
        return Past(unknown=f"it is not kept: {OFF}")
    try:
        # A list by name: those who may list the settings of Drawbridge need no other permission.
        found = cluster.client.list(
            CONFIG_MAPS, namespace, type=StoredHistory, field_selector=f"metadata.name={HISTORY}"
        ).items
        stored = next((each for each in found if each.ours), None)
        return past_of(stored.history, settings, ip, now) if stored else Past(unknown="nothing is stored yet")
    except KubeError as error:
        return Past(unknown=str(unreadable(error)))
    except ValueError as error:
        return Past(unknown=str(error))
