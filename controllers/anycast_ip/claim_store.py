"""Store address claims, and the uuid by which a cluster's addresses are known, as ConfigMaps.

Claims are read once when this process begins to lead, and no other process writes them from then on. The uuid is that
of the original, so that either finds the other's addresses.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from contextlib import suppress

import structlog
from msgspec.structs import replace

from controllers.anycast_ip.claim import CLUSTER_UUID, POOLED, SELECTED, Claim, body, name_of, read
from kube.client import Client, Resource
from kube.errors import AlreadyExists, Conflict, NotFound
from kube.event_recorder import Regarding
from kube.types import ConfigMap, ObjectMeta
from runtime import threading, uuid4

CONFIG_MAPS = Resource("", "v1", "configmaps")
NAMESPACE = "kube-system"

log = structlog.stdlib.get_logger(__name__)


class ClaimStore:
    """Safe to share between threads."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._claims: dict[str, Claim] = {}
        self._stored: dict[str, ObjectMeta] = {}
        self._index: dict[Hashable, set[str]] = {}
        self._lock = threading.Lock()
        self._cluster = ""
        self.has_unmanaged = False

    @property
    def claims(self) -> Mapping[str, Claim]:
        """By the uid of their nodes, as they are now."""
        with self._lock:
            return dict(self._claims)

    def get(self, uid: str) -> Claim | None:
        return self._claims.get(uid)

    def having(self, value: Hashable) -> Collection[Claim]:
        """Claims with this instance, address, token or tag, or those that are POOLED."""
        with self._lock:
            return [self._claims[uid] for uid in self._index.get(value, ())]

    def regarding(self, uid: str) -> Regarding:
        """The claim's ConfigMap, for Events about an address whose node is gone."""
        stored = self._stored.get(uid)
        known_uid = stored.uid if stored else ""
        return Regarding(CONFIG_MAPS.api_version, "ConfigMap", name_of(uid), self._namespace, known_uid)

    def load(self, cluster: str = "") -> None:
        """Read all claims. Those of another *cluster* come from its backup, and their addresses are in use there."""
        self._cluster, self.has_unmanaged = cluster, False
        found = self._client.list(CONFIG_MAPS, self._namespace, type=ConfigMap, label_selector=SELECTED)
        for each in found.items:
            try:
                self._enter(self._of_here(each))
            except ValueError as error:
                log.error("address claim skipped", name=each.metadata.name, error=str(error))

    def _of_here(self, found: ConfigMap) -> ConfigMap:
        cluster = read(found).cluster
        if cluster in ("", self._cluster) or not self._cluster:
            return found
        self.has_unmanaged = True
        raise ValueError(
            f"ConfigMap {found.metadata.name} belongs to another cluster, or to this one before {CLUSTER_UUID} was"
            " created again: delete it here when its address is gone, or is in use over there"
        )

    def put(self, claim: Claim) -> None:
        """Write *claim* over the former one of its node, if there was one."""
        try:
            self._enter(self._written(claim))
        except (AlreadyExists, Conflict):
            self._refresh_version(claim.uid)
            raise

    def _refresh_version(self, uid: str) -> None:
        """An answer was lost, or another client wrote: the next write replaces what is there now."""
        found = self._client.get(CONFIG_MAPS, name_of(uid), self._namespace, type=ConfigMap)
        with self._lock:
            self._stored[uid] = found.metadata

    def _written(self, claim: Claim) -> ConfigMap:
        version = self._version(claim.uid)
        claim = replace(claim, cluster=self._cluster)
        try:
            if version:
                name, new = name_of(claim.uid), body(claim, version)
                return self._client.replace(CONFIG_MAPS, name, new, self._namespace, type=ConfigMap)
        except NotFound:
            log.warning("address claim was deleted by another client", node=claim.node, uid=claim.uid)
        return self._client.create(CONFIG_MAPS, body(claim), self._namespace, type=ConfigMap)

    def drop(self, uid: str) -> None:
        """Conflict, once, when it is not as we wrote it: another leader may have begun again with it."""
        try:
            with suppress(NotFound):
                preconditions = {"resourceVersion": self._version(uid) or None}
                self._client.delete(CONFIG_MAPS, name_of(uid), self._namespace, preconditions=preconditions)
        except Conflict:
            self._refresh_version(uid)
            raise
        with self._lock:
            self._unindex(uid)
            self._claims.pop(uid, None)
            self._stored.pop(uid, None)

    def _version(self, uid: str) -> str:
        stored = self._stored.get(uid)
        return stored.resource_version if stored else ""

    def _enter(self, found: ConfigMap) -> None:
        claim = read(found)
        with self._lock:
            self._unindex(claim.uid)
            self._claims[claim.uid], self._stored[claim.uid] = claim, found.metadata
            for value in _values(claim):
                self._index.setdefault(value, set()).add(claim.uid)

    def _unindex(self, uid: str) -> None:
        for value in _values(self._claims[uid]) if uid in self._claims else ():
            uids = self._index[value]
            uids.discard(uid)
            if not uids:
                del self._index[value]


def _values(claim: Claim) -> set[Hashable]:
    pooled = POOLED if claim.pooled else ""
    values: set[Hashable] = {claim.instance, claim.address, claim.token, pooled, *claim.tags}
    return values - {""}


def cluster_uuid(client: Client) -> str:
    """Created when it is missing. ValueError when a user has emptied it."""
    with suppress(NotFound):
        return _read(client)
    made = {"metadata": {"name": CLUSTER_UUID}, "data": {CLUSTER_UUID: str(uuid4())}}
    with suppress(AlreadyExists):
        client.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", **made}, NAMESPACE)
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
