"""An autoscaler of the cluster: adds a node where a pod fits on none, and removes one of its own that is empty.

https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md, with shorter times.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from dev.simulator.models.cluster import Cluster, Raw
from dev.simulator.models.node_fit import allocatable, matches_node, requests_of, short_of, taints_of
from dev.simulator.models.pods import condition, is_ended, time_of
from kube.errors import KubeError
from kube.resources import NODES, PODS

OWN, MOST = "autoscaler/group", 2
LEAVES = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
PATIENCE, JOINS, UNNEEDED, AGAIN = (timedelta(seconds=each) for each in (10, 30, 60, 5))


class Autoscaler:
    """*make* is the next node of its group, of which there are MOST; *end* ends a machine and deletes its Node."""

    def __init__(self, cluster: Cluster, make: Callable[[], Raw], end: Callable[[str], None]) -> None:
        self._cluster, self._make, self._end = cluster, make, end
        self._client = cluster.api.client("cluster-autoscaler")
        self._next = make()
        self._joins_at: datetime | None = None
        self._empty: dict[str, datetime] = {}

    def step(self, now: datetime) -> datetime:
        self._cluster.look()
        own = {each["metadata"]["name"]: each for each in self._cluster.all(NODES) if _is_own(each)}
        with suppress(KubeError):
            if self._joins_at is None and len(own) < MOST and self._is_wanted(now):
                self._joins_at = now + JOINS
            elif self._joins_at is not None and self._joins_at <= now:
                self._join()
        self._empty = {name: self._empty.get(name, now) for name in own if not self._pods_on(name)}
        for name, node in own.items():
            with suppress(KubeError):
                if LEAVES in taints_of(node):
                    self._remove(name)
                elif now - self._empty.get(name, now) >= UNNEEDED:
                    self._client.patch(NODES, name, {"spec": {"taints": [*taints_of(node), LEAVES]}})
        return now + AGAIN

    def _is_wanted(self, now: datetime) -> bool:
        specs, room = [each["spec"] for each in self._cluster.all(PODS) if _waits(each, now)], self._next
        return any(
            matches_node(each, room) and not short_of(requests_of(each), {}, 0, allocatable(room))
            for each in specs
        )

    def _join(self) -> None:
        node, self._next, self._joins_at = self._next, self._make(), None
        self._client.create(NODES, node)
        status = {"status": node["status"]}
        self._cluster.api.edit(NODES, node["metadata"]["name"], status, manager="kubelet")

    def _pods_on(self, node: str) -> list[Raw]:
        pods = [each for each in self._cluster.pods_on(node) if not is_ended(each)]
        return [
            each
            for each in pods
            if not any(map(_is_daemon_set, each["metadata"].get("ownerReferences") or ()))
        ]

    def _remove(self, node: str) -> None:
        """What was bound since it was empty is evicted first."""
        for pod in self._pods_on(node):
            about = pod["metadata"]
            self._client.evict(about["name"], about["namespace"], preconditions={"uid": about["uid"]})
        if not self._pods_on(node):
            self._end(node)


def _is_own(node: Raw) -> bool:
    return OWN in node["metadata"]["labels"]


def _is_daemon_set(owner: Raw) -> bool:
    return bool(owner["kind"] == "DaemonSet")


def _waits(pod: Raw, now: datetime) -> bool:
    said, since = condition(pod, "PodScheduled") or {}, time_of(pod["metadata"]["creationTimestamp"])
    return (
        said.get("reason") == "Unschedulable" and not pod["spec"].get("nodeName") and now - since >= PATIENCE
    )
