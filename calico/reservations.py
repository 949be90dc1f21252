"""IPReservation objects at the API server, in whichever API group the cluster serves them."""

from __future__ import annotations

from collections.abc import Iterable

from calico.segment import KIND, LEVEL, MANAGED_BY, MANAGER, RELEASE, IPReservation, Record, body, laid_open
from kube.client import Client, Resource
from kube.errors import NotFound
from runtime import time

AUTO = "auto"
GROUPS = ("projectcalico.org/v3", "crd.projectcalico.org/v1")

DISCOVERY_TIMEOUT, LEAST = 10.0, 0.05


class NotServed(Exception):
    """The cluster serves IPReservation in none of the groups that may be used."""


class Reservations:
    """Every write is guarded by the resourceVersion it was decided on: after a Conflict, read again.

    A *timeout*, in seconds, covers discovery, too.
    """

    def __init__(self, client: Client, api_version: str = AUTO) -> None:
        self._client = client
        self._candidates = [_resource(each) for each in (GROUPS if api_version == AUTO else (api_version,))]
        self._found: Resource | None = None

    def resource(self, *, timeout: float = DISCOVERY_TIMEOUT) -> Resource:
        """The first group that is served, remembered until a write finds it gone; NotServed."""
        found, end = self._found, time.monotonic() + timeout  # another thread may forget it
        if found is not None:
            return found
        for each in self._candidates:
            if self._client.serves(each, timeout=_left(end)):
                self._found = each
                return each
        tried = " and ".join(each.api_version for each in self._candidates)
        raise NotServed(f"the cluster serves no {KIND} in {tried}: is Calico installed with its CRDs?")

    def list(self, *, timeout: float = DISCOVERY_TIMEOUT) -> list[IPReservation]:
        resource, left = self._located(timeout)
        return self._client.list(resource, type=IPReservation, timeout=left).items

    def get(self, name: str, *, timeout: float) -> IPReservation:
        resource, left = self._located(timeout)
        return self._client.get(resource, name, type=IPReservation, timeout=left)

    def create(
        self, name: str, records: Iterable[Record], *, level: int = 0, timeout: float
    ) -> IPReservation:
        """A batch; with a *level*, a compacted one.

        AlreadyExists when an earlier call, whose answer was lost, has succeeded.
        """
        resource, left = self._located(timeout)
        new = body(records) | {"apiVersion": resource.api_version, "kind": KIND}
        new["metadata"] |= {"name": name, "labels": {MANAGED_BY: MANAGER, LEVEL: str(level)}}
        try:
            return self._client.create(resource, new, type=IPReservation, timeout=left)
        except NotFound:
            self._found = None
            raise

    def write(self, segment: IPReservation, records: Iterable[Record], *, timeout: float) -> IPReservation:
        """Make *segment* hold exactly *records*; other metadata stays."""
        resource, left = self._located(timeout)
        kept, name = tuple(records), segment.metadata.name
        change = body(kept)
        annotations = change["metadata"]["annotations"]
        named = segment.to_be_released.values()
        if named and not any(each.cidr in named for each in kept):
            annotations |= {RELEASE: None}  # all that it names is released
        change["metadata"] = laid_open(segment.metadata, annotations)
        change["metadata"]["resourceVersion"] = segment.metadata.resource_version
        return self._client.patch(resource, name, change, type=IPReservation, timeout=left)

    def delete(self, segment: IPReservation, *, timeout: float = 5.0) -> None:
        resource, left = self._located(timeout)
        name, version = segment.metadata.name, segment.metadata.resource_version
        self._client.delete(resource, name, preconditions={"resourceVersion": version}, timeout=left)

    def _located(self, timeout: float) -> tuple[Resource, float]:
        """The resource, and what its discovery has left of *timeout*."""
        end = time.monotonic() + timeout
        return self.resource(timeout=timeout), _left(end)


def _left(end: float) -> float:
    """Seconds until *end*; a moment for a last attempt when it has passed."""
    return max(LEAST, end - time.monotonic())


def _resource(api_version: str) -> Resource:
    group, version = api_version.split("/")
    return Resource(group, version, "ipreservations", namespaced=False)
