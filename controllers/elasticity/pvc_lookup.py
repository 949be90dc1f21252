"""What the API server says of claims, volumes and storage classes; what does not exist is None."""

from __future__ import annotations

from typing import TypeVar

from kube.client import Client, Resource
from kube.errors import NotFound
from kube.types import PersistentVolume, PersistentVolumeClaim, StorageClass

CLAIMS = Resource("", "v1", "persistentvolumeclaims")
VOLUMES = Resource("", "v1", "persistentvolumes", namespaced=False)
CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", namespaced=False)

T = TypeVar("T")


class Claims:
    """KubeError when it cannot be asked."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return self._get(CLAIMS, name, namespace, PersistentVolumeClaim)

    def volume(self, name: str) -> PersistentVolume | None:
        return self._get(VOLUMES, name, None, PersistentVolume)

    def storage_class(self, name: str) -> StorageClass | None:
        return self._get(CLASSES, name, None, StorageClass)

    def _get(self, resource: Resource, name: str, namespace: str | None, kind: type[T]) -> T | None:
        try:
            return self._client.get(resource, name, namespace, type=kind)
        except NotFound:
            return None
