"""The garbage collector: what only names owners that are gone is deleted; background deletion alone.

https://kubernetes.io/docs/concepts/architecture/garbage-collection/
https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/garbagecollector/garbagecollector.go
"""

from __future__ import annotations

from datetime import datetime, timedelta

from dev.fake_api.storage import Key
from dev.simulator.models.cluster import NOISE, Cluster, owners_of
from dev.simulator.models.controller import MANAGER
from dev.simulator.models.pods import is_deleted
from kube.errors import KubeError, NotFound

AGAIN = timedelta(seconds=5)


class GarbageCollector:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._client = cluster.api.client(MANAGER)
        self._seen = 0
        self._suspects: dict[str, Key] = {}
        """By uid."""

    def step(self, now: datetime) -> datetime | None:
        self._cluster.look()
        for change in self._cluster.changes(self._seen):
            if change.key[0] in NOISE:
                continue
            old, new = (each and each.raw["metadata"]["uid"] for each in (change.old, change.new))
            if old == new:  # else etcd may have been restored, and another object has taken the name
                continue
            if old:
                for key, raw in self._cluster.dependents(old):
                    self._suspects[raw["metadata"]["uid"]] = key
            if change.new and new and any(owners_of(change.new.raw)):
                self._suspects[new] = change.key
        self._seen = self._cluster.api.version
        for uid, key in list(self._suspects.items()):
            if self._settled(uid, key):
                del self._suspects[uid]
        return now + AGAIN if self._suspects else None

    def _settled(self, uid: str, key: Key) -> bool:
        self._cluster.look()
        raw = self._cluster.get(key)
        if raw is None or raw["metadata"]["uid"] != uid or is_deleted(raw):
            return True
        if any(self._cluster.key_of(each) for each in owners_of(raw)):
            return True
        try:
            self._client.delete(key[0], key[2], key[1] or None, preconditions={"uid": uid})
        except NotFound:
            return True
        except KubeError:
            return False
        return True
