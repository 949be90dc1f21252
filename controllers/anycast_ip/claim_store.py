"""The claims: read when this process begins to lead, and from then on written by nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog
from msgspec.structs import replace

from controllers.anycast_ip.claim import CLUSTER_UUID, SELECTED, Claim, body, name_of, read
from kube.client import Client, Resource
from kube.errors import AlreadyExists, Conflict, NotFound
from kube.event_recorder import Regarding
from kube.types import ConfigMap

CONFIG_MAPS = Resource("", "v1", "configmaps")

log = structlog.stdlib.get_logger(__name__)


class Book:
    """Safe to share between threads; *check* runs before each write, and raises when others may lead."""

    def __init__(self, client: Client, namespace: str, check: Callable[[], None]) -> None:
        self._client, self._namespace, self._check = client, namespace, check
        self._claims: dict[str, Claim] = {}
        self._versions: dict[str, str] = {}
        self._uids: dict[str, str] = {}
        self._writing = threading.Lock()
        self._cluster = ""
        self.has_strangers = False

    @property
    def claims(self) -> Mapping[str, Claim]:
        """By the uid of their nodes, as they are now."""
        with self._writing:
            return dict(self._claims)

    def regarding(self, uid: str) -> Regarding:
        """The claim's ConfigMap, for Events about an address whose node is gone."""
        return Regarding(
            CONFIG_MAPS.api_version, "ConfigMap", name_of(uid), self._namespace, self._uids.get(uid, "")
        )

    def load(self, cluster: str = "") -> None:
        """Read all anew; those of another *cluster* came out of its backup, and their addresses serve over there."""
        self._cluster, self.has_strangers = cluster, False
        found = self._client.list(CONFIG_MAPS, self._namespace, type=ConfigMap, label_selector=SELECTED)
        for each in found.items:
            try:
                self._enter(self._of_here(each))
            except ValueError as error:
                log.error("a claim cannot be read, its address is left alone", error=str(error))

    def _of_here(self, found: ConfigMap) -> ConfigMap:
        cluster = read(found).cluster
        if cluster in ("", self._cluster) or not self._cluster:
            return found
        self.has_strangers = True
        raise ValueError(
            f"ConfigMap {found.metadata.name} is of another cluster, or of this one before {CLUSTER_UUID} was created"
            " anew: delete it here when its address is gone, or serves over there"
        )

    def put(self, claim: Claim) -> None:
        """Write *claim* over the former one of its node, if there was one."""
        self._check()
        try:
            self._enter(self._written(claim))
        except (AlreadyExists, Conflict):
            self._catch_up(claim.uid)
            raise

    def _catch_up(self, uid: str) -> None:
        """An answer was lost, or a hand was in it: the next writing is over what is there now."""
        found = self._client.get(CONFIG_MAPS, name_of(uid), self._namespace, type=ConfigMap)
        with self._writing:
            self._versions[uid] = found.metadata.resource_version

    def _written(self, claim: Claim) -> ConfigMap:
        version = self._versions.get(claim.uid, "")
        claim = replace(claim, cluster=self._cluster)
        what = body(claim, version)
        try:
            if version:
                name = name_of(claim.uid)
                return self._client.replace(CONFIG_MAPS, name, what, self._namespace, type=ConfigMap)
        except NotFound:
            log.warning("a claim was deleted by somebody else, and is written again", node=claim.node)
        return self._client.create(CONFIG_MAPS, body(claim), self._namespace, type=ConfigMap)

    def drop(self, uid: str) -> None:
        """Conflict, once, when it is not as we wrote it: another leader may have begun anew with it."""
        self._check()
        name, version = name_of(uid), self._versions.get(uid)
        try:
            with suppress(NotFound):
                self._client.delete(
                    CONFIG_MAPS, name, self._namespace, preconditions={"resourceVersion": version}
                )
        except Conflict:
            self._catch_up(uid)
            raise
        with self._writing:
            self._claims.pop(uid, None)
            self._versions.pop(uid, None)
            self._uids.pop(uid, None)

    def _enter(self, found: ConfigMap) -> None:
        claim = read(found)
        with self._writing:
            self._claims[claim.uid] = claim
            self._versions[claim.uid] = found.metadata.resource_version
            self._uids[claim.uid] = found.metadata.uid
