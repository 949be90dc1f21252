"""What a pod needs from the API: its ConfigMaps, its Secrets, tokens in its name, and where Services are."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from dev.lab.kubelet.values import Data, Kind, Pod, Store, references
from dev.lab.kubelet.volumes import Tokens, tokens_of
from kube.client import Client, Resource
from kube.errors import NotFound
from kube.resources import SERVICES
from kube.types import ObjectMeta, Value

RESOURCES: dict[Kind, Resource] = {
    "ConfigMap": Resource("", "v1", "configmaps"),
    "Secret": Resource("", "v1", "secrets"),
}
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts")
REFRESH = 0.8  # of a token's life, as the real kubelet does


class Source(Value, frozen=True):
    """A ConfigMap or a Secret."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}


def fetch(client: Client, pod: Pod) -> Store:
    """All that the pod refers to, as it is now."""
    return {(kind, name): _data(client, kind, name, pod.metadata.namespace) for kind, name in references(pod)}


def _data(client: Client, kind: Kind, name: str, namespace: str) -> Data | None:
    try:
        source = client.get(RESOURCES[kind], name, namespace, type=Source)
    except NotFound:
        return None
    return decoded(kind, source)


def service_links(client: Client, namespace: str) -> dict[str, str]:
    """The variables that give each container the Services of its namespace, as the probe of `helm test` reads them."""
    services = client.list(SERVICES, namespace).items
    with_address = [each for each in services if each["spec"].get("clusterIP") not in (None, "", "None")]
    return {name: value for service in with_address for name, value in _links(service).items()}


def _links(service: dict[str, Any]) -> dict[str, str]:
    name = service["metadata"]["name"].upper().replace("-", "_")
    port = str(service["spec"]["ports"][0]["port"])
    return {f"{name}_SERVICE_HOST": service["spec"]["clusterIP"], f"{name}_SERVICE_PORT": port}


def decoded(kind: Kind, source: Source) -> Data:
    binary = source.binary_data if kind == "ConfigMap" else source.data
    text = source.data if kind == "ConfigMap" else {}
    return {name: value.encode() for name, value in text.items()} | {
        name: b64decode(value) for name, value in binary.items()
    }


class TokenBox:
    """The tokens of one pod, renewed before they end."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: dict[tuple[str, int], tuple[str, float]] = {}

    def current(self, pod: Pod, now: float) -> Tokens:
        """``now`` is of ``time.monotonic()``."""
        for key in tokens_of(pod):
            if key not in self._kept or self._kept[key][1] <= now:
                self._kept[key] = self._request(pod, *key), now + REFRESH * key[1]
        return {key: token for key, (token, _) in self._kept.items()}

    def renewal(self) -> float:
        """When the first of them has to be renewed."""
        return min((due for _, due in self._kept.values()), default=float("inf"))

    def _request(self, pod: Pod, audience: str, seconds: int) -> str:
        metadata = pod.metadata
        account = pod.spec.get("serviceAccountName", "default")
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid}
        wanted = {
            "audiences": [audience] if audience else [],
            "expirationSeconds": seconds,
            "boundObjectRef": bound,
        }
        answer: dict[str, Any] = self._client.request(
            "POST",
            SERVICE_ACCOUNTS.sub("token").path(metadata.namespace, account),
            body={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": wanted},
        )
        return str(answer["status"]["token"])
