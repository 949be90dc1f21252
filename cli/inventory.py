"""What the commands read of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

import msgspec

from api.ip_history import NAME as HISTORY
from api.ip_history import StoredHistory
from calico.ipam_config import ipam_configuration
from calico.pools import BLOCKS, POOLS, AssignedBlock, IPAMBlock, IPPool, block_of, located
from calico.reservations import GROUPS
from calico.segment import IPReservation
from cli.cluster import Cluster
from cli.errors import Failure, unreadable
from cli.installation import (
    CHART,
    CONFIGURATION_FILE,
    NAME,
    Configuration,
    Deployment,
    Installed,
    ServiceReference,
    selector_of,
    service_of,
)
from cli.pools import OFF, AddressInCalico, Assignment, Past, PoolFacts, assignment_of, block_name, past_of
from kube.client import Page, Resource
from kube.errors import KubeError, NotFound
from kube.resources import CONFIG_MAPS, DEPLOYMENTS
from kube.types import ConfigMap, ObjectMeta
from settings import Settings
from settings.ip_reservation import Pools
from settings.load import SettingsError, parse

_GROUP = ("admissionregistration.k8s.io", "v1")
VALIDATING = Resource(*_GROUP, "validatingwebhookconfigurations", namespaced=False)
MUTATING = Resource(*_GROUP, "mutatingwebhookconfigurations", namespaced=False)
NOT_INSTALLED = Failure(
    "Drawbridge is not installed in this cluster: it has neither webhooks named ...drawbridge.io nor Deployments",
    "choose another cluster with --context, or install it: docs/how-to/install.md",
)


class AllConfigurations(msgspec.Struct, frozen=True):
    validating: list[Configuration]
    mutating: list[Configuration]


def webhook_configurations(cluster: Cluster) -> AllConfigurations:
    """Those of all programs. Raises KubeError."""
    reads = {each.plural: partial(_configurations, cluster, each) for each in (VALIDATING, MUTATING)}
    found = cluster.read_all(reads)
    return AllConfigurations(found[VALIDATING.plural], found[MUTATING.plural])


def installed(cluster: Cluster, everyones: AllConfigurations | None = None) -> Installed:
    """Raises KubeError; Failure when it is not installed."""
    everyones = everyones or webhook_configurations(cluster)
    validating = [each for each in everyones.validating if each.is_ours]
    mutating = [each for each in everyones.mutating if each.is_ours]
    metadata, service = _release(cluster, [*validating, *mutating])
    namespace, selector = service.namespace, selector_of(metadata)
    list_ours = partial(cluster.client.list, namespace=namespace, label_selector=selector)
    found = cluster.read(
        {
            "deployments": lambda: list_ours(DEPLOYMENTS, type=Deployment).items,
            "files": lambda: list_ours(CONFIG_MAPS, type=ConfigMap).items,
        }
    )
    if isinstance(found["deployments"], KubeError):
        raise found["deployments"]
    settings, refused = _settings(found["files"])
    return Installed(service, validating, mutating, found["deployments"], settings, refused)


def _release(cluster: Cluster, configurations: list[Configuration]) -> tuple[ObjectMeta, ServiceReference]:
    """By its webhook configurations; by its Deployments, where these were deleted in an emergency."""
    if service := service_of(configurations):
        return configurations[0].metadata, service
    deployments = cluster.client.list(DEPLOYMENTS, type=Deployment, label_selector=f"{NAME}={CHART}").items
    if not deployments:
        raise NOT_INSTALLED
    metadata = deployments[0].metadata
    return metadata, ServiceReference(namespace=metadata.namespace)


def _configurations(cluster: Cluster, resource: Resource) -> list[Configuration]:
    return cluster.client.request("GET", resource.path(), type=Page[Configuration]).items or []


def _settings(files: list[ConfigMap] | KubeError) -> tuple[Settings | None, tuple[str, ...]]:
    if isinstance(files, KubeError):
        return None, (f"the settings cannot be read: {files}",)
    text = next((each.data[CONFIGURATION_FILE] for each in files if CONFIGURATION_FILE in each.data), None)
    if text is None:
        return None, (f"no ConfigMap of the release has a {CONFIGURATION_FILE}",)
    try:
        return parse(text), ()
    except SettingsError as error:
        return None, error.problems


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


def assigned(cluster: Cluster, ip: str) -> AddressInCalico:
    """Reads the pools, one block, and Calico's configuration."""
    try:
        resource = located(cluster.client, POOLS)
        pools = cluster.client.list(resource, type=IPPool).items if resource else []
        pool = next((each for each in pools if each.has(ip)), None)
        if pool is None:
            return AddressInCalico(ip)
        found = _in_block(cluster, pool, ip)
        return AddressInCalico(ip, pool.metadata.name, found, cooldown=_known_cooldown(cluster))
    except KubeError as error:
        return AddressInCalico(ip, unknown=str(unreadable(error)))


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
