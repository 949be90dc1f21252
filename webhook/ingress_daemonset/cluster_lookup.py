"""The webhooks of ingress_daemonset, what they read within a deadline, and the drain requests that they write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from api.ingress_daemonset import DRAIN_REQUESTS, INGRESS_DAEMONSETS
from api.ingress_daemonset.template import FollowedNode, readable, where_of
from api.ingress_daemonset.types import IngressDaemonSet
from kube.client import Client
from kube.errors import KubeError, Unreachable
from kube.resources import ALL, NODES, PODS, Resource, Selection
from kube.types import Pod, key_of
from runtime import time
from settings import IngressDaemonSetSettings
from webhook.admission import Webhook
from webhook.ingress_daemonset.evictions import EvictionWebhook
from webhook.ingress_daemonset.validate import MOST_PROBLEMS, PATH, PortUser, Problem
from webhook.ingress_daemonset.webhook import DefaultingWebhook, ValidatingWebhook
from webhook.replica import Replica

PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "tke.cloud.tencent.com/no-aia-ip")
"""Prefixes of the taints that keep pods off a node until it is ready again, or has its anycast IP."""

Raw = dict[str, Any]
T = TypeVar("T")


class ClusterLookup:
    """All methods raise KubeError."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock

    def port_users(self, new: IngressDaemonSet, deadline: float) -> list[PortUser]:
        """Other IngressDaemonSets that bind a health port of *new*."""
        ports, key = {*new.spec.health_check_node_ports}, key_of(new.metadata)
        # A terminating one gives its ports back.
        sharing = [
            other
            for other in self.ingress_daemonsets(None, "", deadline=deadline)
            if key_of(other.metadata) != key
            and other.metadata.deletion_timestamp is None
            and not ports.isdisjoint(other.spec.health_check_node_ports)
        ]
        shared = self._shared_nodes(new, sharing, deadline) if sharing else {}
        keys = [(key_of(other.metadata), other.spec.health_check_node_ports) for other in sharing]
        return [PortUser(key, ports, shared.get(key, "")) for key, ports in keys]

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod:
        return self._client.get(PODS, name, namespace, type=Pod, timeout=self._left(deadline))

    def request_drain(self, resource: IngressDaemonSet, node: str, at: str, *, deadline: float) -> None:
        """KubeError, too, when it was not stored: then no eviction could ever pass by its time."""
        metadata = resource.metadata
        written: Raw = self._client.patch(
            INGRESS_DAEMONSETS.sub("status"),
            metadata.name,
            {"metadata": {"uid": metadata.uid}, "status": {DRAIN_REQUESTS: {node: at}}},
            metadata.namespace,
            timeout=self._left(deadline),
        )
        if (written.get("status", {}).get(DRAIN_REQUESTS) or {}).get(node) != at:
            raise KubeError(f"the CRD has no status.{DRAIN_REQUESTS}: upgrade it to that of this version")

    def ingress_daemonsets(
        self, namespace: str | None, name: str, *, deadline: float
    ) -> Iterator[IngressDaemonSet]:
        """Without unreadable ones, which are older than the schema and the rules; controllers ignore them."""
        selection = Selection(namespace, field_selector=f"metadata.name={name}" if name else "")
        for raw in self._items(INGRESS_DAEMONSETS, Raw, selection, deadline):
            self._left(deadline)
            try:
                yield readable(raw)
            except msgspec.ValidationError:
                continue

    def template_problems(self, template: Mapping[str, Any], deadline: float) -> list[Problem]:
        """Fields of *template* that the API server would drop or refuse."""
        document = self._client.request("GET", DOCUMENT, type=Document, timeout=self._left(deadline))
        schemas = document.components.schemas
        if POD_TEMPLATE not in schemas:
            raise Unreachable(f"{DOCUMENT} has no schema of {POD_TEMPLATE}")
        # To find similar names for thousands of unknown fields would take seconds.
        return list(islice(schema_problems(template, schemas), MOST_PROBLEMS + 1))

    def _shared_nodes(
        self, new: IngressDaemonSet, others: list[IngressDaemonSet], deadline: float
    ) -> dict[str, str]:
        """The first node that *new* and each of *others* match, by the other's key."""
        shared: dict[str, str] = {}
        mine, theirs = where_of(new), {key_of(other.metadata): where_of(other) for other in others}
        for node in self._items(NODES, FollowedNode, ALL, deadline):
            self._left(deadline)
            lasting = tuple(taint for taint in node.spec.taints if not taint.key.startswith(PASSING))
            node = replace(node, spec=replace(node.spec, taints=lasting))
            if mine.matches(node, runs=False):
                missing = theirs.keys() - shared.keys()
                shared |= {key: node.name for key in missing if theirs[key].matches(node, runs=False)}
            if len(shared) == len(others):
                break
        return shared

    def _items(
        self,
        kind: Resource,
        type: type[T],  # noqa: A002 - as the client
        selection: Selection,
        deadline: float,
    ) -> Iterator[T]:
        pages = self._client.list_pages(kind, selection, type=type, timeout=lambda: self._left(deadline))
        for page in pages:
            yield from page.items or ()

    def _left(self, deadline: float) -> float:
        if (left := deadline - self._clock()) > 0:
            return left
        raise Unreachable("the API server was not fast enough")


DOCUMENT = "/openapi/v3/apis/apps/v1"
"""Any user that is authenticated may read it."""
POD_TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"
TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}
"""OpenAPI types as decoded from JSON."""


class Schema(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    ref: str = msgspec.field(default="", name="$ref")
    all_of: tuple[Schema, ...] = ()
    properties: dict[str, Schema] = {}
    items: Schema | None = None
    additional_properties: Schema | bool | None = None


Schemas = Mapping[str, Schema]
"""By the names in references."""


class Components(msgspec.Struct):
    schemas: dict[str, Schema] = {}


class Document(msgspec.Struct):
    components: Components = msgspec.field(default_factory=Components)


def schema_problems(template: Any, schemas: Schemas) -> Iterator[Problem]:
    yield from _problems(template, schemas.get(POD_TEMPLATE), schemas, PATH)


def _problems(value: Any, schema: Schema | None, schemas: Schemas, path: str) -> Iterator[Problem]:
    schema = _resolved(schema, schemas)
    if value is None or schema is None:
        return
    if not _is_of(value, schema.type):
        yield path, f"the API server takes {schema.type} here, not {_name_of(value)}"
    elif isinstance(value, dict):
        yield from _in_object(value, schema, schemas, path)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _problems(each, schema.items, schemas, f"{path}[{index}]")


def _in_object(value: Mapping[str, Any], schema: Schema, schemas: Schemas, path: str) -> Iterator[Problem]:
    others = schema.additional_properties
    for key, each in value.items():
        if key in schema.properties:
            yield from _problems(each, schema.properties[key], schemas, f"{path}.{key}")
        elif isinstance(others, Schema):
            yield from _problems(each, others, schemas, f"{path}[{key}]")
        elif schema.properties and not others:
            yield f"{path}.{key[:80]}", _unknown(key, schema.properties)


def _unknown(key: str, known: Iterable[str]) -> str:
    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(key[:80].lower(), by_lower, n=1)
    way_out = f"leave it out, or write {by_lower[close[0]]}" if close else "leave it out"
    return f"unknown field, which the API server would drop: {way_out}"


def _resolved(schema: Schema | None, schemas: Schemas) -> Schema | None:
    """The schema that *schema* refers to; with a default, the reference is the only member of an allOf."""
    for _ in range(len(schemas) + 1):
        if schema is None:
            return None
        [only, *others] = schema.all_of or (schema,)
        if others or not (reference := schema.ref or only.ref):
            return schema
        schema = schemas.get(reference.rpartition("/")[2])
    return None


def _is_of(value: Any, wanted: str) -> bool:
    if wanted not in TYPES:
        return True
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, TYPES[wanted])


def _name_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return next(name for name, kind in TYPES.items() if isinstance(value, kind))


def webhooks(replica: Replica) -> Sequence[Webhook]:
    def settings() -> IngressDaemonSetSettings:
        return replica.settings().ingress_daemonset

    cluster = ClusterLookup(replica.client)
    return [
        DefaultingWebhook(settings),
        ValidatingWebhook(settings, cluster.port_users, cluster.template_problems),
        EvictionWebhook(settings, cluster, replica.now),
    ]
