"""Pods on nodes and super nodes: what the scheduler does, and what is paid by the pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from dev.judge.judge import Always
from dev.judge.observation import Observation, condition, is_super, is_terminating, name, notes, owner

Raw = dict[str, Any]
LOCAL_REPLICAS = "LOCAL_REPLICAS"
GATE = "drawbridge.io/placement"
REASON = "drawbridge.io/placement-reason"
OVER = ("Succeeded", "Failed")


def is_gated(pod: Raw) -> bool:
    gates = (pod.get("spec") or {}).get("schedulingGates") or []
    return any(each["name"] == GATE for each in gates)


class NeverMoreThanNLocal(Always):
    """While *cap* pods are on super nodes, one more is local at a time, so that a rollout goes on: documented."""

    name = "placement: never more than N replicas of a workload's revision on local nodes"
    sees = ("nodes", "pods")

    def __init__(self, cap: int | None = None) -> None:
        self._cap = cap
        self._extra: dict[str, int] = {}
        """By workload: how many came on top of N while the cap was full; they stay."""
        self._was_gated: set[str] = set()
        """By uid: a pod that came while no webhook answered was never ours to place."""

    def look(self, seen: Observation) -> Iterator[str]:
        local: Counter[str] = Counter()
        limits: dict[str, int] = {}
        for uid, pod in seen.pods.items():
            if is_gated(pod):
                self._was_gated.add(uid)
            node = seen.nodes.get(pod["spec"].get("nodeName", ""))
            controller = owner(pod, "ReplicaSet")
            limit = notes(pod).get(LOCAL_REPLICAS, "")
            if node is None or controller is None or not limit.isdecimal() or uid not in self._was_gated:
                continue
            if is_super(node) or is_terminating(pod) or pod["status"].get("phase") in OVER:
                continue
            local[controller["name"]] += 1
            limits[controller["name"]] = int(limit)
        is_full = (
            self._cap is not None and sum(_is_billed(pod, seen) for pod in seen.pods.values()) >= self._cap
        )
        for workload, count in local.items():
            extra = self._extra.get(workload, 0)
            if count == limits[workload] + extra + 1 and is_full:
                self._extra[workload] = extra + 1
            elif count > limits[workload] + extra:
                yield f"{count} pods of {workload} are local, {limits[workload]} may be"


class NeverMoreThanTheCap(Always):
    """*cap* is of all pods on super nodes; None for no cap. One that was *lowered* sends none away."""

    name = "placement: never more pods on super nodes than the cap, terminating ones included"
    sees = ("nodes", "pods")

    def __init__(self, cap: int | None, *, lowered: bool = False) -> None:
        self._cap = cap
        self._stay: int | None = None if lowered else cap
        """How many may be there; None before the first look."""

    def look(self, seen: Observation) -> Iterator[str]:
        if self._cap is None:
            return
        there = [pod for pod in seen.pods.values() if _is_billed(pod, seen)]
        self._stay = max(self._cap, len(there) if self._stay is None else min(self._stay, len(there)))
        if len(there) > self._stay:
            yield f"{len(there)} of {self._cap}: {', '.join(sorted(name(each) for each in there))}"


def _is_full(cap: int | None, seen: Observation) -> bool:
    return cap is not None and sum(_is_billed(pod, seen) for pod in seen.pods.values()) >= cap


def _is_billed(pod: Raw, seen: Observation) -> bool:
    node = seen.nodes.get(pod["spec"].get("nodeName", ""))
    return node is not None and is_super(node) and pod["status"].get("phase") not in OVER


class NoneWaitsBehindAGate(Always):
    """But for those that must: *cap* pods are on super nodes, and each may be local only within N."""

    name = "placement: no pod waits behind our gate for ever while the cap has room"

    def __init__(self, cap: int | None) -> None:
        self._cap = cap

    def rest(self, seen: Observation) -> Iterator[str]:
        if _is_full(self._cap, seen):
            return
        for pod in seen.pods.values():
            if is_gated(pod):
                yield f"{name(pod)}: {notes(pod).get(REASON, 'no reason given')}"


class RolloutsOfWorkloadsEnd(Always):
    """While the *cap* is full, a pod beyond it and beyond N waits, but no update does."""

    name = "placement: no workload's rollout stands still because of us"

    def __init__(self, cap: int | None = None) -> None:
        self._cap = cap

    def rest(self, seen: Observation) -> Iterator[str]:
        for workload in seen.workloads.values():
            strategy = (workload.get("spec") or {}).get("strategy")
            status = workload.get("status") or {}
            wanted = (workload.get("spec") or {}).get("replicas", 1)
            if strategy is None or owner(workload, "IngressDaemonSet"):
                continue
            if status.get("updatedReplicas", 0) < wanted:
                yield f"{name(workload)}: {status.get('updatedReplicas', 0)} of {wanted} are updated"
            waiting = condition(workload, "Progressing").get("reason") == "ProgressDeadlineExceeded"
            is_full = _is_full(self._cap, seen)
            if waiting and not is_full and status.get("availableReplicas", 0) < wanted:
                yield f"{name(workload)}: {status.get('availableReplicas', 0)} of {wanted} are available"
