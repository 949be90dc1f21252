"""IPReservation objects at the API server, in whichever API group the cluster serves them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from calico.errors import NotServed
from calico.segment import KIND, MANAGED_BY, MANAGER, IPReservation, Record, body
from kube.client import Client, Resource
from kube.errors import NotFound

AUTO = "auto"
GROUPS = ("projectcalico.org/v3", "crd.projectcalico.org/v1")


class Store(Protocol):
    """What the ledger needs of :class:`Reservations`."""

    def get(self, name: str, *, timeout: float) -> IPReservation: ...
    def create(self, name: str, records: Iterable[Record], *, timeout: float) -> IPReservation: ...
    def write(
        self, segment: IPReservation, records: Iterable[Record], *, timeout: float
    ) -> IPReservation: ...


class Reservations:
    """Every write is guarded by the resourceVersion it was decided on: Conflict means look again.

    *before_write* is called ahead of each write, and may forbid it by raising.
    """

    def __init__(
        self, client: Client, api_version: str = AUTO, *, before_write: Callable[[], None] = lambda: None
    ) -> None:
        self._client, self._before_write = client, before_write
        self._candidates = [_resource(each) for each in (GROUPS if api_version == AUTO else (api_version,))]
        self._found: Resource | None = None

    def resource(self) -> Resource:
        """The first group that is served, remembered until it is served no more; else NotServed."""
        if self._found is None:
            self._found = next((each for each in self._candidates if self._client.serves(each)), None)
        if self._found is None:
            tried = " and ".join(each.api_version for each in self._candidates)
            raise NotServed(f"the cluster serves no {KIND} in {tried}: is Calico installed with its CRDs?")
        return self._found

    def list(self) -> list[IPReservation]:
        return self._client.list(self.resource(), type=IPReservation).items

    def get(self, name: str, *, timeout: float) -> IPReservation:
        return self._client.get(self.resource(), name, type=IPReservation, timeout=timeout)

    def create(self, name: str, records: Iterable[Record], *, timeout: float) -> IPReservation:
        resource = self.resource()
        self._before_write()
        new = body(records) | {"apiVersion": resource.api_version, "kind": KIND}
        new["metadata"] |= {"name": name, "labels": {MANAGED_BY: MANAGER}}
        try:
            return self._client.create(resource, new, type=IPReservation, timeout=timeout)
        except NotFound:
            self._found = None
            raise

    def write(self, segment: IPReservation, records: Iterable[Record], *, timeout: float) -> IPReservation:
        """Make *segment* hold exactly *records*; what others wrote into its metadata stays."""
        self._before_write()
        change = body(records)
        change["metadata"]["resourceVersion"] = segment.metadata.resource_version
        name = segment.metadata.name
        return self._client.patch(self.resource(), name, change, type=IPReservation, timeout=timeout)

    def delete(self, segment: IPReservation, *, timeout: float = 5.0) -> None:
        self._before_write()
        name, version = segment.metadata.name, segment.metadata.resource_version
        self._client.delete(self.resource(), name, resource_version=version, timeout=timeout)


def _resource(api_version: str) -> Resource:
    group, version = api_version.split("/")
    return Resource(group, version, "ipreservations", namespaced=False)
