"""An installation as values: found by its webhook configurations, whatever the release is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import yaml

from api.ingress_daemonset.types import time_of
from kube.errors import KubeError
from kube.lease_spec import LeaseSpec
from kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Resource
from kube.selectors import LabelSelector
from kube.types import ObjectMeta, Value
from settings import Settings

WEBHOOKS_END_IN = ".drawbridge.io"
OF_KUBE_SYSTEM = f"-kube-system{WEBHOOKS_END_IN}"
CHART = "drawbridge"
NAME, INSTANCE = "app.kubernetes.io/name", "app.kubernetes.io/instance"
COMPONENT, VERSION = "app.kubernetes.io/component", "app.kubernetes.io/version"
WEBHOOK, CONTROLLERS = "webhook", "controllers"
ADMISSION = "admissionregistration.k8s.io"
CONFIGURATION_FILE = "config.yaml"
CONFIGURATIONS = {
    "MutatingWebhookConfiguration": MUTATING_WEBHOOKS,
    "ValidatingWebhookConfiguration": VALIDATING_WEBHOOKS,
}
"""In the order in which the API server calls their webhooks."""
POLICIES = {
    kind: Resource(ADMISSION, "v1", plural, namespaced=False)
    for kind, plural in (
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
        ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
    )
}
REPLACES = "drawbridge.io/replaces-webhook"
"""Annotation of a policy: namespace and name of the Service, and path, of the webhook that it stands in for."""


class ServiceReference(Value, frozen=True):
    name: str = ""
    namespace: str = ""
    path: str = ""
    port: int = 443


class ClientConfig(Value, frozen=True):
    ca_bundle: str = ""
    service: ServiceReference | None = None


class Rule(Value, frozen=True):
    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    scope: str = "*"


class MatchCondition(Value, frozen=True):
    name: str = ""
    expression: str = ""


class RegisteredWebhook(Value, frozen=True):
    """One entry of a webhook configuration."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()
    rules: tuple[Rule, ...] = ()
    failure_policy: str = ""
    namespace_selector: LabelSelector = LabelSelector()
    object_selector: LabelSelector = LabelSelector()
    match_conditions: tuple[MatchCondition, ...] = ()
    timeout_seconds: int = 10

    @property
    def is_ours(self) -> bool:
        return self.name.endswith(WEBHOOKS_END_IN)

    @property
    def path(self) -> str:
        """Of its Service; nothing for one outside the cluster."""
        return self.client_config.service.path if self.client_config.service else ""


class WebhookConfiguration(Value, frozen=True):
    """Of either *kind*, in a word: mutating or validating."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[RegisteredWebhook, ...] = ()
    kind: str = ""


class MatchResources(Value, frozen=True):
    resource_rules: tuple[Rule, ...] = ()
    namespace_selector: LabelSelector = LabelSelector()
    object_selector: LabelSelector = LabelSelector()


class PolicySpec(Value, frozen=True):
    """*policy_name* is of a binding, all else of a policy."""

    policy_name: str = ""
    failure_policy: str = ""
    match_constraints: MatchResources = MatchResources()
    match_conditions: tuple[MatchCondition, ...] = ()


class MutatingPolicy(Value, frozen=True):
    """A MutatingAdmissionPolicy, or its binding."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PolicySpec = PolicySpec()

    @property
    def replaces(self) -> ServiceReference:
        namespace, _, rest = self.metadata.annotations.get(REPLACES, "").partition("/")
        name, slash, path = rest.partition("/")
        return ServiceReference(name, namespace, slash + path)

    @property
    def as_webhook(self) -> RegisteredWebhook:
        """It applies to the same requests, and changes them as that webhook does."""
        matches = self.spec.match_constraints
        return RegisteredWebhook(
            name=self.metadata.name,
            client_config=ClientConfig(service=self.replaces),
            rules=matches.resource_rules,
            failure_policy=self.spec.failure_policy,
            namespace_selector=matches.namespace_selector,
            object_selector=matches.object_selector,
            match_conditions=self.spec.match_conditions,
        )


def webhooks_in(configurations: Iterable[WebhookConfiguration]) -> list[RegisteredWebhook]:
    return [webhook for each in configurations for webhook in each.webhooks]


class PodSpec(Value, frozen=True):
    service_account_name: str = ""


class PodTemplate(Value, frozen=True):
    spec: PodSpec = PodSpec()


class DeploymentSpec(Value, frozen=True):
    replicas: int = 1
    template: PodTemplate = PodTemplate()


class DeploymentStatus(Value, frozen=True):
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0


class Deployment(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()

    @property
    def component(self) -> str:
        return self.metadata.labels.get(COMPONENT, "")


class ManagedFields(Value, frozen=True):
    time: str = ""
    fields: dict[str, Any] = msgspec.field(default={}, name="fieldsV1")


class LeaseMeta(ObjectMeta, frozen=True):
    managed_fields: tuple[ManagedFields, ...] = ()


class Lease(Value, frozen=True):
    metadata: LeaseMeta = LeaseMeta()
    spec: LeaseSpec = LeaseSpec()

    @property
    def renewed(self) -> datetime | None:
        """By the API server's clock: the holder's may be behind. By that one where a proxy drops managedFields."""
        written = (
            each for each in self.metadata.managed_fields if "f:renewTime" in each.fields.get("f:spec", {})
        )
        times = filter(None, (time_of(each.time) for each in written))
        return max(times, default=time_of(self.spec.renew_time or ""))


@dataclass(frozen=True)
class Installed:
    """*settings* are those of the ConfigMap, which has them as *text*.

    None when they are invalid, and then *refused* says why, or *unread* why they cannot be read.
    """

    service: ServiceReference
    configurations: Sequence[WebhookConfiguration]
    deployments: Sequence[Deployment]
    settings: Settings | None
    refused: Sequence[str] = ()
    text: str = ""
    unread: KubeError | None = None

    @property
    def namespace(self) -> str:
        return self.service.namespace

    @property
    def accounts(self) -> dict[str, str]:
        """The name of the user that each program is, by its component."""
        found = {each.component: each.spec.template.spec.service_account_name for each in self.deployments}
        prefix = f"system:serviceaccount:{self.namespace}:"
        return {component: prefix + name for component, name in found.items() if name}

    @property
    def paths(self) -> list[str]:
        """Of the webhook server, that the API server calls, and not for kube-system alone."""
        ours = (each for each in webhooks_in(self.configurations) if each.is_ours)
        return sorted({each.path for each in ours if not each.name.endswith(OF_KUBE_SYSTEM)} - {""})

    @property
    def version(self) -> str:
        versions = {each.metadata.labels.get(VERSION, "") for each in self.deployments}
        return ", ".join(sorted(versions - {""}))

    @cached_property
    def settings_or_defaults(self) -> Settings:
        """For what has to be known in any case: the defaults stand in for settings that cannot be used.

        But for the names of the Lease and the Secret, which other settings leave as they are.
        """
        return self.settings or _named_in(self.text)


def _named_in(text: str) -> Settings:
    with suppress(yaml.YAMLError, ValueError, AttributeError, RecursionError):
        found = {name: part for name, part in yaml.safe_load(text).items() if name in NAMES}
        return Settings.model_validate(found, by_alias=True, by_name=False)
    return Settings()


NAMES = ("leaderElection", "certs")
"""Sections that have them, which the chart computes."""
OWN = "own"
"""In place of a namespace: that of the installation."""
CALICO = "calico"
"""In place of a group: that which is served."""


class Access(NamedTuple):
    """What a program, or the user, must be allowed; *namespace* is empty for the whole cluster."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}{where}"

    @property
    def attributes(self) -> dict[str, Any]:
        """As a review of access has them."""
        resource, _, subresource = self.resource.partition("/")
        return self._asdict() | {"resource": resource, "subresource": subresource}

    def located(self, namespace: str, calico: str) -> Access:
        group = calico if self.group == CALICO else self.group
        return self._replace(group=group, namespace=namespace if self.namespace == OWN else "")


Needs = Iterator[tuple[str, Access]]
"""Each with the component that needs it."""


def needs_of(component: str, verbs: str, *of: str) -> Needs:
    """One for each of *verbs*, *of* what Access has after them."""
    return ((component, Access(verb, *of)) for verb in verbs.split())


def selector_of(metadata: ObjectMeta) -> str:
    """The label selector of all objects of the release that one object is of."""
    return ",".join(f"{key}={metadata.labels[key]}" for key in (NAME, INSTANCE) if key in metadata.labels)
