"""Nodes that fall silent: their condition, taints by condition, and the eviction of pods by NoExecute taints.

https://kubernetes.io/docs/concepts/architecture/nodes/#node-controller
https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/nodelifecycle/node_lifecycle_controller.go
https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/tainteviction/taint_eviction.go
The rates at which the real one taints nodes of a zone are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from dev.simulator.models.cluster import Cluster, Raw
from dev.simulator.models.controller import MANAGER, POLL, Spawn, at_once
from dev.simulator.models.node_fit import NO_EXECUTE, NO_SCHEDULE, taints_of, tolerates
from dev.simulator.models.pods import (
    condition,
    is_deleted,
    is_ready,
    is_unknown,
    stamp,
    time_of,
    with_condition,
)
from kube.errors import KubeError, NotFound
from kube.resources import NODES, PODS

GRACE = timedelta(seconds=50)
"""Of silence, until a node counts as unreachable."""
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
CORDONED = "node.kubernetes.io/unschedulable"
OURS = frozenset({NOT_READY, UNREACHABLE, CORDONED})
AGAIN = timedelta(seconds=5)


class NodeLifecycle:
    """*silent* says since when each kubelet that does not report is so."""

    def __init__(self, cluster: Cluster, silent: Mapping[str, datetime], spawn: Spawn = at_once) -> None:
        self._cluster, self._silent, self._spawn = cluster, silent, spawn
        self._client = cluster.api.client(MANAGER)
        self._seen = -1
        self._due: datetime | None = None
        self._was_silent: dict[str, datetime] = {}
        self._evicting: set[str] = set()

    def step(self, now: datetime) -> datetime | None:
        version = self._cluster.api.version_of(NODES, PODS)
        is_due = self._due is not None and self._due <= now
        if version == self._seen and self._was_silent == self._silent and not is_due:
            return self._next(self._due, now)
        self._seen, self._was_silent = version, dict(self._silent)
        self._cluster.look()
        due = [self._node_due(node, now) for node in self._cluster.all(NODES)]
        self._due = min((at for at in due if at is not None), default=None)
        return self._next(self._due, now)

    def _next(self, due: datetime | None, now: datetime) -> datetime | None:
        return now + POLL if self._evicting else due

    def _node_due(self, node: Raw, now: datetime) -> datetime | None:
        name = node["metadata"]["name"]
        due: list[datetime] = []
        if since := self._silent.get(name):
            if now < since + GRACE:
                due.append(since + GRACE)
            elif not is_unknown(node):
                node = self._mark_unknown(node, now)
        node = self._taint(node, now)
        due += self._evictions(node, now)
        return min(due, default=None)

    def _mark_unknown(self, node: Raw, now: datetime) -> Raw:
        """And its pods as not ready."""
        name = node["metadata"]["name"]
        told = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
        conditions = with_condition(node["status"].get("conditions") or [], "Ready", "Unknown", now, **told)
        for pod in self._cluster.pods_on(name):
            if is_ready(pod):
                new = with_condition(
                    pod["status"]["conditions"], "Ready", "False", now, reason="NodeNotReady"
                )
                self._edit_pod(pod, {"status": {"conditions": new}})
        return self._cluster.api.edit(NODES, name, {"status": {"conditions": conditions}}, manager=MANAGER)

    def _taint(self, node: Raw, now: datetime) -> Raw:
        wanted = list(_wanted(node))
        held = taints_of(node)
        ours = {(each["key"], each["effect"]) for each in held if each["key"] in OURS}
        if ours == set(wanted):
            return node
        kept = [each for each in held if each["key"] not in OURS or (each["key"], each["effect"]) in wanted]
        new = [
            {"key": key, "effect": effect, **({"timeAdded": stamp(now)} if effect == NO_EXECUTE else {})}
            for key, effect in wanted
            if (key, effect) not in ours
        ]
        name = node["metadata"]["name"]
        try:  # guarded as the real one does it, by the version that was read
            change = {
                "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
                "spec": {"taints": [*kept, *new]},
            }
            return self._client.patch(NODES, name, change)
        except KubeError:
            self._seen = -1
            return node

    def _evictions(self, node: Raw, now: datetime) -> Iterator[datetime]:
        taints = [each for each in taints_of(node) if each["effect"] == NO_EXECUTE]
        if not taints:
            return
        for pod in self._cluster.pods_on(node["metadata"]["name"]):
            at = None if is_deleted(pod) else _evicted_at(pod, taints, now)
            if at is not None and at <= now:
                self._evict(pod, now)
                yield now + AGAIN
            elif at is not None:
                yield at

    def _evict(self, pod: Raw, now: datetime) -> None:
        uid = pod["metadata"]["uid"]
        if uid not in self._evicting:
            self._evicting.add(uid)
            self._spawn(functools.partial(self._delete, pod, now), f"evict {pod['metadata']['name']}")

    def _delete(self, pod: Raw, now: datetime) -> None:
        metadata = pod["metadata"]
        text = "Taint manager: deleting due to NoExecute taint"
        told = {"reason": "DeletionByTaintManager", "message": text}
        conditions = (pod.get("status") or {}).get("conditions") or []
        try:
            if condition(pod, "DisruptionTarget") is None:
                new = with_condition(conditions, "DisruptionTarget", "True", now, **told)
                self._edit_pod(pod, {"status": {"conditions": new}})
            self._client.delete(PODS, metadata["name"], metadata["namespace"])
        except (NotFound, KubeError):
            pass  # tried again
        self._evicting.discard(metadata["uid"])

    def _edit_pod(self, pod: Raw, change: Raw) -> None:
        key = self._cluster.key_of(pod["metadata"]["uid"])
        if key is not None:
            self._cluster.api.edit(PODS, key[2], change, key[1], manager=MANAGER)


def _wanted(node: Raw) -> Iterator[tuple[str, str]]:
    """The taints that its conditions call for."""
    found = condition(node, "Ready")
    status = found["status"] if found else "Unknown"
    if status != "True":
        key = UNREACHABLE if status == "Unknown" and found else NOT_READY
        yield key, NO_SCHEDULE
        if found:
            yield key, NO_EXECUTE
    if (node.get("spec") or {}).get("unschedulable"):
        yield CORDONED, NO_SCHEDULE


def _evicted_at(pod: Raw, taints: list[Raw], now: datetime) -> datetime | None:
    """None for one that tolerates them all for ever."""
    times = []
    for taint in taints:
        fitting = [each for each in pod["spec"].get("tolerations") or () if tolerates(each, taint)]
        if not fitting:
            return now
        limits = [each["tolerationSeconds"] for each in fitting if each.get("tolerationSeconds") is not None]
        if limits:
            since = time_of(taint["timeAdded"]) if taint.get("timeAdded") else now
            times.append(since + timedelta(seconds=max(0, min(limits))))
    return min(times, default=None)
