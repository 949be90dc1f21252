"""Carry out what was planned, on the objects as they were read."""

from __future__ import annotations

from collections.abc import Iterable

from calico.segment import KIND
from cli.cluster import Cluster
from cli.errors import Failure
from cli.reservations.plan import Annotate, Delete
from kube.client import Resource
from kube.errors import AlreadyExists, Conflict, NotFound

CHANGED = Failure("a reservation was changed in the meantime; nothing was changed by you", "repeat it")


def write(cluster: Cluster, resource: Resource, actions: Iterable[Annotate | Delete]) -> None:
    for action in actions:
        try:
            _write(cluster, resource, action)
        except (Conflict, NotFound):
            raise CHANGED from None


def create(cluster: Cluster, resource: Resource, body: dict[str, object]) -> None:
    """Raises KubeError."""
    try:
        cluster.client.create(resource, {"apiVersion": resource.api_version, "kind": KIND, **body})
    except AlreadyExists:
        raise CHANGED from None


def _write(cluster: Cluster, resource: Resource, action: Annotate | Delete) -> None:
    match action:
        case Annotate(segment):
            cluster.client.patch(resource, segment.metadata.name, action.patch)
        case Delete(reservation):
            metadata = reservation.metadata
            preconditions = {"uid": metadata.uid or None}
            cluster.client.delete(resource, metadata.name, preconditions=preconditions)
