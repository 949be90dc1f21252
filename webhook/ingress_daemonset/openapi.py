"""Read the API server's own schema of a pod template: once, and again only before a field is denied."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kube.client import Client
from kube.errors import Unreachable
from webhook.ingress_daemonset.cluster_lookup import seconds_left
from webhook.ingress_daemonset.field_errors import Problem
from webhook.ingress_daemonset.pod_schema import POD_TEMPLATE, Schema, Schemas, reachable, schema_problems
from webhook.ingress_daemonset.template import PATH

INDEX = "/openapi/v3"
DOCUMENT = "apis/apps/v1"


class Entry(msgspec.Struct, rename="camel"):
    """One document; its address has a hash of its content."""

    server_relative_url: str = msgspec.field(default="", name="serverRelativeURL")


class Index(msgspec.Struct):
    paths: dict[str, Entry] = {}


class Components(msgspec.Struct):
    schemas: dict[str, Schema] = {}


class Document(msgspec.Struct):
    components: Components = msgspec.field(default_factory=Components)


@dataclass(frozen=True)
class _Known:
    address: str = ""
    schemas: Schemas = field(default_factory=dict)


class PodTemplates:
    """Safe to use from any thread; any user that is authenticated may read what is read here."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._known = _Known()
        self._reading = threading.Lock()

    def problems(self, template: Mapping[str, Any], *, deadline: float) -> list[Problem]:
        """Fields of *template* that the API server would drop or refuse. KubeError.

        A field that the last schema does not have may be one of a newer API server.
        """
        known = self._known
        if known.schemas and not list(schema_problems(template, known.schemas, PATH)):
            return []
        return list(schema_problems(template, self._read(deadline).schemas, PATH))

    def _read(self, deadline: float) -> _Known:
        if not self._reading.acquire(timeout=self._left(deadline)):
            raise Unreachable("the API server's schema was not read in time")
        try:
            index = self._client.request("GET", INDEX, type=Index, timeout=self._left(deadline))
            address = index.paths.get(DOCUMENT, Entry()).server_relative_url
            if not address or address != self._known.address:
                self._known = _Known(address, self._schemas(deadline))
            return self._known
        finally:
            self._reading.release()

    def _schemas(self, deadline: float) -> Schemas:
        path = f"{INDEX}/{DOCUMENT}"
        document = self._client.request("GET", path, type=Document, timeout=self._left(deadline))
        found = reachable(document.components.schemas, POD_TEMPLATE)
        if not found:
            raise Unreachable(f"{path} has no schema of {POD_TEMPLATE}")
        return found

    def _left(self, deadline: float) -> float:
        return seconds_left(deadline, self._clock)
