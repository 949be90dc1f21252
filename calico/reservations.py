"""IPReservation objects at the API server, in whichever API group the cluster serves them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from calico.segment import (
    KIND,
    LEVEL,
    MANAGED_BY,
    MANAGER,
    PREFIX,
    RELEASE,
    TERM,
    IPReservation,
    Record,
    body,
    laid_open,
)
from kube.client import Client, Resource
from kube.errors import Forbidden, NotFound
from kube.types import OwnerReference
from runtime import secrets, time

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
        groups = GROUPS if api_version == AUTO else (api_version,)
        self._candidates = [resource_in(group, "ipreservations") for group in groups]
        self._found: Resource | None = None

    def resource(self, *, timeout: float = DISCOVERY_TIMEOUT) -> Resource:
        """The group in which Calico works, remembered until a write finds it gone; NotServed."""
        found = self._found  # another thread may forget it
        if found is None:
            self._found = found = first_served(self._client, self._candidates, timeout)
        if found is None:
            tried = " and ".join(resource.api_version for resource in self._candidates)
            raise NotServed(f"the cluster serves no {KIND} in {tried}: is Calico installed with its CRDs?")
        return found

    def list(self, *, timeout: float = DISCOVERY_TIMEOUT) -> list[IPReservation]:
        resource, left = self._located(timeout)
        return self._client.list(resource, type=IPReservation, timeout=left).items

    def create(
        self,
        name: str,
        records: Iterable[Record],
        *,
        level: int = 0,
        owner: OwnerReference | None = None,
        timeout: float,
    ) -> IPReservation:
        """A batch; with a *level*, a compacted one; one that goes with its *owner*.

        AlreadyExists when an earlier call, whose answer was lost, has succeeded.
        """
        resource, left = self._located(timeout)
        new = body(records) | {"apiVersion": resource.api_version, "kind": KIND}
        new["metadata"] |= {"name": name, "labels": {MANAGED_BY: MANAGER, LEVEL: str(level)}}
        if owner is not None:
            new["metadata"]["ownerReferences"] = [msgspec.to_builtins(owner)]
        try:
            return self._client.create(resource, new, type=IPReservation, timeout=left)
        except NotFound:
            self._found = None
            raise

    def write(
        self, segment: IPReservation, records: Iterable[Record], *, term: str | None = None, timeout: float
    ) -> IPReservation:
        """Make *segment* hold exactly *records*; other metadata stays. A new *term* always makes a new version."""
        resource, left = self._located(timeout)
        kept, name = tuple(records), segment.metadata.name
        change = body(kept)
        annotations = change["metadata"]["annotations"]
        if named := segment.to_be_released:
            stay = {record.cidr for record in kept}  # what was released is named no more
            annotations |= {RELEASE: ",".join(entry for entry in named if named[entry] in stay) or None}
        annotations |= {TERM: term} if term else {}
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
        return self.resource(timeout=timeout), left_until(end)


def first_served(
    client: Client, candidates: Iterable[Resource], timeout: float | None = None
) -> Resource | None:
    """Of *candidates* in Calico's groups, within *timeout* seconds in all. KubeError.

    Of two groups that are served, it is the one in which Calico works: where both CRDs are installed, it stays with the
    older ones (libcalico-go, ``lib/backend/k8s``: UsingV3CRDs).
    """
    end = None if timeout is None else time.monotonic() + timeout

    def left() -> float | None:
        return None if end is None else left_until(end)

    served = [each for each in candidates if client.serves(each, timeout=left())]
    if len(served) > 1:
        served = [each for each in served if _works_in(client, each, left())] or served
    return served[0] if served else None


def _works_in(client: Client, group: Resource, timeout: float | None) -> bool:
    """Whether Calico does; it may, for those who may not see it."""
    information = resource_in(group.api_version, "clusterinformations")
    try:
        return client.find(information, "default", timeout=timeout) is not None
    except Forbidden:
        return True


def left_until(end: float) -> float:
    """Seconds until *end*; a moment for a last attempt when it has passed."""
    return max(LEAST, end - time.monotonic())


def new_name(writer: str) -> str:
    """Of a segment that *writer* creates, a pod or what it does: another one each time."""
    return f"{PREFIX}{writer.removeprefix(PREFIX)}-{secrets.token_hex(8)}"


def resource_in(api_version: str, plural: str) -> Resource:
    group, version = api_version.split("/")
    return Resource(group, version, plural, namespaced=False)
