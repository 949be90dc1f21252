"""Read and write the Secret and the webhook configurations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from certs.ca_bundle import bundles_in, with_bundle
from certs.rotation import Held, data_with, held_in
from kube.client import Client, Resource
from kube.errors import ApiError, KubeError
from kube.event_recorder import Regarding
from kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS

SECRETS = Resource("", "v1", "secrets")
CONFIGURATIONS = (
    (VALIDATING_WEBHOOKS, ""),
    (VALIDATING_WEBHOOKS, "-ingress-daemonset"),
    (MUTATING_WEBHOOKS, ""),
)
"""Each by its resource, and by what its name has after the configured one."""


@dataclass(frozen=True)
class Snapshot:
    """The objects at one moment; None for a Secret that does not exist."""

    secret: dict[str, Any] | None
    configurations: tuple[tuple[Resource, dict[str, Any]], ...]

    @property
    def held(self) -> Held:
        return held_in((self.secret or {}).get("data") or {})

    @property
    def bundles(self) -> list[bytes]:
        return [bundle for _, each in self.configurations for bundle in bundles_in(each)]


@dataclass(frozen=True)
class Store:
    """Each write carries the resourceVersion of its snapshot; Conflict or AlreadyExists when that is outdated."""

    client: Client
    namespace: str
    secret_name: str
    configuration_name: str

    @property
    def regarding(self) -> Regarding:
        return Regarding("v1", "Secret", self.secret_name, self.namespace)

    def read(self) -> Snapshot:
        configurations = (
            (resource, self.client.find(resource, f"{self.configuration_name}{suffix}"))
            for resource, suffix in CONFIGURATIONS
        )
        found = tuple((resource, each) for resource, each in configurations if each is not None)
        return Snapshot(self.client.find(SECRETS, self.secret_name, self.namespace), found)

    def write_secret(self, snapshot: Snapshot, held: Held) -> None:
        before = snapshot.secret
        if before is None:
            metadata = {"name": self.secret_name, "namespace": self.namespace} | _release_metadata(snapshot)
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data_with(held, {})}
            self.client.create(SECRETS, body, self.namespace)
        else:
            data = data_with(held, before.get("data") or {})
            body = before | {"metadata": _not_issued_by_others(before["metadata"]), "data": data}
            self.client.replace(SECRETS, self.secret_name, body, self.namespace)

    def write_bundles(self, snapshot: Snapshot, bundle: bytes) -> None:
        """Write *bundle* to each configuration; raise the first failure, which names its object, after the others."""
        failures: list[KubeError] = []
        for resource, configuration in snapshot.configurations:
            if {*bundles_in(configuration)} <= {bundle}:
                continue
            name = configuration["metadata"]["name"]
            try:
                self.client.replace(resource, name, with_bundle(configuration, bundle))
            except ApiError as error:
                message = f"{resource.plural}/{name}: {error.message}"
                failures.append(type(error)(error.status, error.reason, message, error.retry_after))
            except KubeError as error:
                failures.append(error)
        if failures:
            raise failures[0]


def _not_issued_by_others(metadata: dict[str, Any]) -> dict[str, Any]:
    """Without cert-manager's annotations: they would keep it from issuing when it takes over again."""
    given: dict[str, str] = metadata.get("annotations") or {}
    left = {name: value for name, value in given.items() if not name.startswith("cert-manager.io/")}
    return metadata | {"annotations": left}


def _release_metadata(snapshot: Snapshot) -> dict[str, Any]:
    """The labels and annotations by which Helm deletes the Secret with its release."""
    if not snapshot.configurations:
        return {}
    _, configuration = snapshot.configurations[0]
    given: dict[str, str] = configuration["metadata"].get("annotations") or {}
    annotations = {name: value for name, value in given.items() if name.startswith("meta.helm.sh/")}
    return {"labels": configuration["metadata"].get("labels") or {}, "annotations": annotations}
