"""Whether the workload that owns an object is gone or going."""

from __future__ import annotations

from kube.client import Client, Resource
from kube.errors import Forbidden, NotFound
from kube.types import OwnerReference, Pod
from webhook.ip_reservation import OWNERS

KINDS = {
    (api_version, kind): Resource(group, version, f"{kind.lower()}s")
    for api_version, kind in OWNERS
    for group, version in [api_version.split("/")]
}


class Owners:
    """Reads owners from the API server; remembers those that are deleted, as none comes back under its uid."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._deleted: dict[str, None] = {}

    def is_deleted(self, namespace: str, owner: OwnerReference) -> bool:
        """False for kinds that are unknown or that we may not read: then nothing is skipped."""
        if owner.uid not in self._deleted and not self._read_is_deleted(namespace, owner):
            return False
        self._deleted[owner.uid] = None
        if len(self._deleted) > 10_000:
            del self._deleted[next(iter(self._deleted))]
        return True

    def _read_is_deleted(self, namespace: str, owner: OwnerReference) -> bool:
        resource = KINDS.get((owner.api_version, owner.kind))
        if resource is None:
            return False
        try:
            # Any object decodes as the metadata of a pod; nothing else is looked at.
            found = self._client.get(resource, owner.name, namespace, type=Pod)
        except NotFound:
            return True
        except Forbidden:
            return False
        return found.metadata.uid != owner.uid or found.terminating
