"""What commands read of a cluster: each list and each object once, decoded once, when a command first asks for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, TypeVar

from msgspec.structs import replace

from calico.pools import ipam_configuration, located
from calico.reservations import Reservations
from calico.segment import IPReservation
from cli.cluster import FROM_MEMORY, Cluster, attempt
from cli.errors import Failure
from cli.installation import (
    CHART,
    CONFIGURATION_FILE,
    CONFIGURATIONS,
    NAME,
    POLICIES,
    Access,
    Deployment,
    Installed,
    Lease,
    MutatingPolicy,
    ServiceReference,
    WebhookConfiguration,
    selector_of,
    webhooks_in,
)
from cli.pods import Pod, Raw, StoredPod, stored
from kube.client import Page
from kube.errors import Forbidden, KubeError, NotFound
from kube.resources import ALL, CONFIG_MAPS, DEPLOYMENTS, LEASES, NAMESPACES, NODES, PODS, Resource, Selection
from kube.types import INSTANCE_TYPE, SUPER_NODE, ConfigMap, Namespace, Node
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

    def find(self, resource: Resource, name: str, namespace: str | None, type: type[T]) -> T | None:  # noqa: A002
        """As `get`; None when there is no such object."""
        try:
            return self.get(resource, name, namespace, type)
        except NotFound:
            return None

    def list(self, resource: Resource, type: type[T], selection: Selection = ALL) -> Sequence[T]:  # noqa: A002
        """In pages, as it is now."""
        return self.once(
            ("list", resource, type, selection),
            lambda: (
                self.client.list(
                    resource,
                    selection.namespace,
                    type=type,
                    label_selector=selection.label_selector,
                    field_selector=selection.field_selector,
                ).items
            ),
        )

    def cached(self, resource: Resource, type: type[T], selection: Selection = ALL) -> Sequence[T]:  # noqa: A002
        """As informers read: the API server answers from memory, whole, and perhaps a moment late."""
        path, query = resource.path(selection.namespace), selection.query | FROM_MEMORY

        def read() -> Sequence[T]:
            page: Page[T] = self.client.request("GET", path, query=query, type=Page[type])  # type: ignore[valid-type]
            return page.items or []

        return self.once(("cached", resource, type, selection), read)

    @cached_property
    def configurations(self) -> Sequence[WebhookConfiguration]:
        """Those of all programs, in the order in which the API server calls their webhooks."""
        reads = (partial(self.list, each, WebhookConfiguration) for each in CONFIGURATIONS.values())
        found = zip(("mutating", "validating"), self.cluster.together(*reads), strict=True)
        return [replace(each, kind=kind) for kind, listed in found for each in listed]

    @cached_property
    def policies(self) -> Sequence[MutatingPolicy]:
        """Those that replace webhooks, and are bound; none where the API server serves no such kind."""
        reads = (partial(self.list, each, MutatingPolicy) for each in POLICIES.values())
        try:
            policies, bindings = self.cluster.together(*reads)
        except NotFound:
            return ()
        bound = {each.spec.policy_name for each in bindings}
        return [each for each in policies if each.replaces.path and each.metadata.name in bound]

    @cached_property
    def installed(self) -> Installed:
        """By its webhook configurations; by its Deployments, where these were deleted in an emergency."""
        ours = [each for each in self.configurations if any(webhook.is_ours for webhook in each.webhooks)]
        services = (each.client_config.service for each in webhooks_in(ours) if each.is_ours)
        if service := next(filter(None, services), None):
            metadata = ours[0].metadata
        elif not isinstance(policies := attempt(lambda: self.policies), KubeError) and policies:
            metadata, service = policies[0].metadata, policies[0].replaces
        else:
            chart = Selection(label_selector=f"{NAME}={CHART}")
            if not (deployments := self.list(DEPLOYMENTS, Deployment, chart)):
                raise NOT_INSTALLED
            metadata = deployments[0].metadata
            service = ServiceReference(namespace=metadata.namespace)
        release = Selection(service.namespace, selector_of(metadata))
        reads: dict[str, Callable[[], Any]] = {
            "deployments": partial(self.list, DEPLOYMENTS, Deployment, release),
            "files": partial(self.list, CONFIG_MAPS, ConfigMap, release),
        }
        deployments, files = self.cluster.read(reads).values()
        if isinstance(deployments, KubeError):
            raise deployments
        if isinstance(files, KubeError):
            return Installed(service, ours, deployments, None, unread=files)
        text = next(
            (each.data[CONFIGURATION_FILE] for each in files if CONFIGURATION_FILE in each.data), None
        )
        if text is None:
            refused = [f"no ConfigMap of the release has a {CONFIGURATION_FILE}"]
            return Installed(service, ours, deployments, None, refused)
        try:
            return Installed(service, ours, deployments, parse(text), text=text)
        except SettingsError as error:
            return Installed(service, ours, deployments, None, error.problems, text)

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
        election = self.installed.settings_or_defaults.leader_election
        return self.get(LEASES, election.resource_name, election.resource_namespace, Lease)

    def pod(self, namespace: str, name: str) -> StoredPod | None:
        raw = self.find(PODS, name, namespace, Raw)
        return stored(raw) if raw else None

    def pods(self, selection: Selection) -> Sequence[StoredPod]:
        return [*map(stored, self.list(PODS, Raw, selection))]

    def all_pods(self, where: Selection = ALL) -> Sequence[Pod]:
        """As `cached`. Of all namespaces, each is listed alone: the API server makes several lists at a time."""
        namespaces = [where.namespace]
        if not where.namespace:
            with suppress(Forbidden):  # then all are one list
                namespaces = [each.metadata.name for each in self.cached(NAMESPACES, Namespace)]
        selections = (dataclasses.replace(where, namespace=each) for each in namespaces)
        found = self.cluster.together(*(partial(self.cached, PODS, Pod, each) for each in selections))
        return [pod for pods in found for pod in pods]

    def nodes(self, label_selector: str = "") -> Sequence[Node]:
        return self.cached(NODES, Node, Selection(label_selector=label_selector))

    def super_nodes(self) -> Sequence[str]:
        return [node.metadata.name for node in self.nodes(f"{INSTANCE_TYPE}={SUPER_NODE}")]

    @cached_property
    def reservations(self) -> Reservations:
        settings = self.installed.settings_or_defaults.ip_reservation
        return Reservations(self.client, settings.calico_api_version)

    def segments(self) -> Sequence[IPReservation]:
        """All IPReservations; NotServed."""
        return self.once("segments", self.reservations.list)

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
        answer = self.client.request("POST", f"{REVIEWS}/{kind.lower()}s", body=body)
        return bool(answer.get("status", {}).get("allowed"))
