"""The uuid by which a cluster's addresses are known, shared with the original so that either finds the other's."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from controllers.anycast_ip.claim import CLUSTER_UUID
from controllers.anycast_ip.claim_store import CONFIG_MAPS
from kube.client import Client
from kube.errors import AlreadyExists, NotFound
from kube.types import ConfigMap

NAMESPACE = "kube-system"


def cluster_uuid(client: Client, check: Callable[[], None]) -> str:
    """Created when it is missing. ValueError when a user has emptied it."""
    try:
        return _read(client)
    except NotFound:
        check()
    try:
        metadata = {"name": CLUSTER_UUID}
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {CLUSTER_UUID: str(uuid.uuid4())},
        }
        client.create(CONFIG_MAPS, body, NAMESPACE)
    except AlreadyExists:
        pass
    return _read(client)


def incarnation(client: Client) -> str:
    """What a cluster that was restored elsewhere from a backup does not share with it: the uid of the same object."""
    return client.get(CONFIG_MAPS, CLUSTER_UUID, NAMESPACE, type=ConfigMap).metadata.uid


def _read(client: Client) -> str:
    found = client.get(CONFIG_MAPS, CLUSTER_UUID, NAMESPACE, type=ConfigMap).data.get(CLUSTER_UUID, "")
    if not found:
        raise ValueError(
            f"ConfigMap {NAMESPACE}/{CLUSTER_UUID} has no value {CLUSTER_UUID}: the cluster's addresses are tagged with"
            " it; write it there again, or delete the ConfigMap when no address of the cluster is left"
        )
    return found
