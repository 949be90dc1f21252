"""The garbage collector of pods: those of nodes that are gone, and those that never had one. It leaves what has ended.

https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/podgc/gc_controller.go
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import datetime, timedelta

from dev.simulator.models.cluster import Cluster, Raw
from dev.simulator.models.controller import MANAGER, Spawn, at_once
from dev.simulator.models.node_fit import taints_of
from dev.simulator.models.node_lifecycle import UNREACHABLE
from dev.simulator.models.pods import is_deleted, is_ended, is_ready, with_condition
from kube.errors import KubeError
from kube.resources import NODES, PODS

EVERY = timedelta(seconds=20)
QUARANTINE = timedelta(seconds=40)
"""A node must be gone for so long, as a new one may come under its name."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


class PodGC:
    def __init__(self, cluster: Cluster, spawn: Spawn = at_once) -> None:
        self._cluster, self._spawn = cluster, spawn
        self._client = cluster.api.client(MANAGER)
        self._due: datetime | None = None
        self._seen = -1
        self._gone: dict[str, datetime] = {}
        """Nodes that pods name, first missed when."""

    def step(self, now: datetime) -> datetime | None:
        version = self._cluster.api.version_of(PODS, NODES)
        if self._due is None and version == self._seen:
            return None
        if self._due is not None and now < self._due:
            return self._due
        self._seen = version
        self._cluster.look()
        pods = self._cluster.all(PODS)
        for pod, why in list(self._surplus(pods, now)):
            self._spawn(functools.partial(self._delete, pod, why, now), f"collect {pod['metadata']['name']}")
        is_clean = not self._gone and not any(map(is_deleted, pods))
        self._due = None if is_clean and version == self._cluster.api.version_of(PODS, NODES) else now + EVERY
        return self._due

    def _surplus(self, pods: list[Raw], now: datetime) -> Iterator[tuple[Raw, str]]:
        """And why it goes; nothing for one that has ended anyway."""
        nodes = {each["metadata"]["name"]: each for each in self._cluster.all(NODES)}
        missing = {each["spec"].get("nodeName") for each in pods} - nodes.keys() - {None}
        self._gone = {name: self._gone.get(name, now) for name in sorted(missing)}
        for pod in pods:
            name = pod["spec"].get("nodeName")
            if not name and is_deleted(pod):
                yield pod, ""
            elif name in self._gone and now >= self._gone[name] + QUARANTINE:
                yield pod, "PodGC: node no longer exists"
            elif name in nodes and is_deleted(pod) and is_out_of_service(nodes[name]):
                yield pod, "PodGC: node has an out-of-service taint"

    def _delete(self, pod: Raw, why: str, now: datetime) -> None:
        metadata = pod["metadata"]
        try:
            if why and not is_ended(pod):
                told = {"reason": "DeletionByPodGC", "message": why}
                held = (pod.get("status") or {}).get("conditions") or []
                conditions = with_condition(held, "DisruptionTarget", "True", now, **told)
                change = {"status": {"phase": "Failed", "conditions": conditions}}
                path = PODS.sub("status")
                self._client.patch(path, metadata["name"], change, metadata["namespace"])
            self._client.delete(
                PODS,
                metadata["name"],
                metadata["namespace"],
                preconditions={"uid": metadata["uid"]},
                grace_seconds=0,
            )
        except KubeError:
            return  # tried again in the next pass


def is_out_of_service(node: Raw) -> bool:
    keys = {each["key"] for each in taints_of(node)}
    return {OUT_OF_SERVICE, UNREACHABLE} <= keys and not is_ready(node)
