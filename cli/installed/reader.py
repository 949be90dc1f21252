"""Find the installation, and read what belongs to it."""

from __future__ import annotations

from functools import partial

import msgspec

from cli.cluster import Cluster
from cli.errors import Failure
from cli.installed.types import (
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
from kube.client import Page, Resource
from kube.errors import KubeError
from kube.resources import CONFIG_MAPS, DEPLOYMENTS
from kube.types import ConfigMap, ObjectMeta
from settings import Settings
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
