"""Webhook configurations, and the requests that they are about, as the API server reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from kube.resources import Resource
from kube.selectors import LabelSelector
from kube.types import ObjectMeta, Value, complete
from webhook.admission import API_VERSION, KIND, Operation

GROUP = "admissionregistration.k8s.io"
CONFIGURATIONS = {
    kind: Resource(GROUP, "v1", f"{kind.lower()}s", namespaced=False)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
}
"""In the order in which the API server calls their webhooks."""
USER = "kubernetes-admin"


class Rule(Value, frozen=True):
    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    scope: Literal["*", "Namespaced", "Cluster"] = "*"


class MatchCondition(Value, frozen=True):
    name: str = ""
    expression: str = ""


class ServiceReference(Value, frozen=True):
    namespace: str = ""
    name: str = ""
    path: str = ""


class ClientConfig(Value, frozen=True):
    service: ServiceReference | None = None


class RegisteredWebhook(Value, frozen=True):
    """One entry of a webhook configuration."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()
    rules: tuple[Rule, ...] = ()
    failure_policy: str = "Fail"
    namespace_selector: LabelSelector = LabelSelector()
    object_selector: LabelSelector = LabelSelector()
    match_conditions: tuple[MatchCondition, ...] = ()
    timeout_seconds: int = 10

    @property
    def path(self) -> str:
        """Of its Service; nothing for one outside the cluster."""
        return self.client_config.service.path if self.client_config.service else ""


class WebhookConfiguration(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[RegisteredWebhook, ...] = ()


complete(WebhookConfiguration)


@dataclass(frozen=True)
class ApiRequest:
    """A request for an object, raw, as admission sees it."""

    operation: Operation
    resource: Resource
    name: str
    namespace: str = ""
    object: Mapping[str, Any] | None = None
    old_object: Mapping[str, Any] | None = None
    username: str = USER
    dry_run: bool = False

    @property
    def admission(self) -> dict[str, Any]:
        """The variable ``request`` of match conditions: without the objects."""
        given = self.object or self.old_object or {}
        group, _, version = str(given.get("apiVersion", "")).rpartition("/")
        kind = {"group": group, "version": version, "kind": given.get("kind", "")}
        resource = {
            "group": self.resource.group,
            "version": self.resource.version,
            "resource": self.resource.plural,
        }
        names = {"subResource": self.resource.subresource, "name": self.name, "namespace": self.namespace}
        return {
            "uid": "",
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            **{name: value for name, value in names.items() if value},
            "operation": self.operation,
            "userInfo": {"username": self.username},
            "dryRun": self.dry_run,
        }

    def review(self, uid: str) -> bytes:
        """The AdmissionReview that webhooks are sent."""
        objects = {"object": self.object, "oldObject": self.old_object}
        request = self.admission | objects | {"uid": uid}
        return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "request": request})
