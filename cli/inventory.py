"""What commands read of a cluster: each list and each object once, decoded once, when a command first asks for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar

import msgspec

from calico.ipam_config import ipam_configuration
from calico.pools import located
from calico.reservations import Reservations
from calico.segment import IPReservation
from cli.access import Access
from cli.cluster import Cluster
from cli.errors import Failure
from cli.installation import (
    CHART,
    CONFIGURATION_FILE,
    CONFIGURATIONS,
    NAME,
    Deployment,
    Installed,
    Lease,
    ServiceReference,
    WebhookConfiguration,
    WebhookConfigurations,
    selector_of,
)
from kube.client import Page
from kube.errors import KubeError
from kube.resources import ALL, CONFIG_MAPS, DEPLOYMENTS, LEASES, NODES, Resource, Selection
from kube.types import INSTANCE_TYPE, SUPER_NODE, ConfigMap, Node, ObjectMeta
from runtime import futures, threading
from settings import Settings
from settings.load import SettingsError, parse

T = TypeVar("T")
SECONDS = 30.0
"""For an answer of Calico's configuration."""
REVIEWS = "/apis/authorization.k8s.io/v1"
NOT_INSTALLED = Failure(
    "Drawbridge is not installed in this cluster: it has neither webhooks named ...drawbridge.io nor Deployments",
    "choose another cluster with --context, or install it: docs/how-to/install.md",
)


class _Verdict(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Verdict = msgspec.field(default_factory=_Verdict)


class Inventory:
    """*cluster* as it is from now on. All raise KubeError, or Failure when Drawbridge is not installed.

    Safe to use from any thread: one reads, and the others wait for what it finds.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.client, self.now = cluster, cluster.client, cluster.now
        self._lock, self._found = threading.Lock(), dict[Hashable, futures.Future[Any]]()

    def once(self, key: Hashable, read: Callable[[], T]) -> T:
        """What *read* returns, or raises: to all who ask for *key*."""
        with self._lock:
            is_first = key not in self._found
            found: futures.Future[T] = self._found.setdefault(key, futures.Future())
        if is_first:
            try:
                found.set_result(read())
            except Exception as error:
                found.set_exception(error)
        return found.result()

    def get(self, resource: Resource, name: str, namespace: str | None, type: type[T]) -> T:  # noqa: A002
        key = ("get", resource, namespace, name, type)
        return self.once(key, partial(self.client.get, resource, name, namespace, type=type))

    def list(self, resource: Resource, type: type[T], selection: Selection = ALL) -> Sequence[T]:  # noqa: A002
        """In pages, as it is now."""
        return self.once(("list", resource, type, selection), partial(self._list, resource, type, selection))

    def cached(self, resource: Resource, type: type[T], selection: Selection = ALL) -> Sequence[T]:  # noqa: A002
        """As informers read: the API server answers from memory, whole, and perhaps a moment late."""
        read = partial(self.cluster.cached, resource, type, selection)
        return self.once(("cached", resource, type, selection), read)

    def _list(self, resource: Resource, type: type[T], selection: Selection) -> Sequence[T]:  # noqa: A002
        return self.client.list(
            resource,
            selection.namespace,
            type=type,
            label_selector=selection.label_selector,
            field_selector=selection.field_selector,
        ).items

    @cached_property
    def configurations(self) -> WebhookConfigurations:
        """Those of all programs."""
        reads = {kind: partial(self._configurations, resource) for kind, resource in CONFIGURATIONS.items()}
        return WebhookConfigurations(*self.cluster.read_all(reads).values())

    @cached_property
    def installed(self) -> Installed:
        configurations = self.configurations.ours
        metadata, service = self._release(configurations)
        ours = Selection(service.namespace, selector_of(metadata))
        found = self.cluster.read(
            {
                "deployments": partial(self.list, DEPLOYMENTS, Deployment, ours),
                "files": partial(self.list, CONFIG_MAPS, ConfigMap, ours),
            }
        )
        if isinstance(found["deployments"], KubeError):
            raise found["deployments"]
        text, refused = _configuration_in(found["files"])
        settings, problems = _parsed(text) if text else (None, refused)
        return Installed(service, configurations, found["deployments"], settings, problems, text)

    @cached_property
    def settings(self) -> Settings:
        """Those in force, for what they decide; Failure when they cannot be used."""
        found = self.installed.settings
        if found is None:
            raise Failure(
                "the settings of Drawbridge cannot be read, and they decide",
                "see drawbridge status for the cause",
            )
        return found

    @property
    def namespace(self) -> str:
        return self.installed.namespace

    def lease(self) -> Lease:
        """The leader's."""
        election = self.installed.in_force.leader_election
        return self.get(LEASES, election.resource_name, election.resource_namespace, Lease)

    def nodes(self, label_selector: str = "") -> Sequence[Node]:
        return self.cached(NODES, Node, Selection(label_selector=label_selector))

    def super_nodes(self) -> Sequence[str]:
        return [node.metadata.name for node in self.nodes(f"{INSTANCE_TYPE}={SUPER_NODE}")]

    @cached_property
    def reservations(self) -> Reservations:
        return Reservations(self.client, self.installed.in_force.ip_reservation.calico_api_version)

    def segments(self) -> Sequence[IPReservation]:
        """All IPReservations; NotServed."""
        return self.once("segments", self.reservations.list)

    def serves_reservations(self, api_version: str) -> bool:
        """Whether one of Calico's groups has IPReservations."""
        group, version = api_version.split("/")
        resource = Resource(group, version, "ipreservations", namespaced=False)
        return self.once(("serves", api_version), partial(self.client.serves, resource))

    def of_calico(self, plural: str, kind: type[T]) -> Sequence[T] | None:
        """None where neither of its groups serves them."""
        resource = located(self.client, plural)
        return self.list(resource, kind) if resource else None

    def cooldown(self) -> int:
        """Seconds for which Calico gives a released IP to no pod, 0 for none."""
        return self.once("cooldown", lambda: ipam_configuration(self.client, timeout=SECONDS).cooldown)

    def may(self, access: Access, account: str = "") -> bool:
        """Whether *account*, or else the user, may."""
        spec: dict[str, Any] = {"resourceAttributes": access.attributes}
        kind = "SelfSubjectAccessReview"
        if account:
            spec["user"], kind = account, "SubjectAccessReview"
            spec["groups"] = ["system:serviceaccounts", "system:authenticated"]
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        return self.client.request(
            "POST", f"{REVIEWS}/{kind.lower()}s", body=body, type=_Review
        ).status.allowed

    def _configurations(self, resource: Resource) -> Sequence[WebhookConfiguration]:
        return self.client.request("GET", resource.path(), type=Page[WebhookConfiguration]).items or []

    def _release(self, configurations: WebhookConfigurations) -> tuple[ObjectMeta, ServiceReference]:
        """By its webhook configurations; by its Deployments, where these were deleted in an emergency."""
        if service := configurations.service:
            return next(each.metadata for _, each in configurations), service
        deployments = self.list(DEPLOYMENTS, Deployment, Selection(label_selector=f"{NAME}={CHART}"))
        if not deployments:
            raise NOT_INSTALLED
        metadata = deployments[0].metadata
        return metadata, ServiceReference(namespace=metadata.namespace)


def _configuration_in(files: Iterable[ConfigMap] | KubeError) -> tuple[str, tuple[str, ...]]:
    """The text of the settings, or why there is none."""
    if isinstance(files, KubeError):
        return "", (f"the settings cannot be read: {files}",)
    found = [file.data[CONFIGURATION_FILE] for file in files if CONFIGURATION_FILE in file.data]
    return (found[0], ()) if found else ("", (f"no ConfigMap of the release has a {CONFIGURATION_FILE}",))


def _parsed(text: str) -> tuple[Settings | None, tuple[str, ...]]:
    try:
        return parse(text), ()
    except SettingsError as error:
        return None, error.problems
