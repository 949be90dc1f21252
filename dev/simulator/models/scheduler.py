"""The default scheduler: filters, the scores LeastAllocated, TaintToleration and NodeAffinity, binding.

https://kubernetes.io/docs/reference/scheduling/config/#scheduling-plugins
https://github.com/kubernetes/kubernetes/tree/master/pkg/scheduler/framework/plugins
It knows no volumes, no affinity between pods, no spreading and no preemption.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random

from dev.simulator.models.cluster import Cluster, Raw
from dev.simulator.models.node_fit import (
    NO_EXECUTE,
    NO_SCHEDULE,
    allocatable,
    host_ports,
    matches_node,
    matches_term,
    requests_of,
    short_of,
    taints_of,
    tolerates,
    untolerated,
)
from dev.simulator.models.pods import condition, is_deleted, is_ended, with_condition
from kube.errors import KubeError
from kube.resources import NODES, PODS

NAME = "default-scheduler"
MANAGER = "kube-scheduler"
FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 10.0
FLUSH = timedelta(minutes=5)
"""After which a pod is tried again though nothing has changed."""
AFFINITY_WEIGHT, TAINT_WEIGHT = 2, 3


@dataclass
class Try:
    """Of one pod that did not fit: how often, and not before when again."""

    count: int
    at: datetime
    version: int


class Scheduler:
    def __init__(self, cluster: Cluster, dice: Random) -> None:
        self._cluster, self._dice = cluster, dice
        self._client = cluster.api.client(MANAGER)
        self._tries: dict[str, Try] = {}
        self._requests: dict[str, Counter[str]] = {}
        self._seen = -1

    def step(self, now: datetime) -> datetime | None:
        version = self._cluster.api.version_of(PODS, NODES)
        due = min((each.at for each in self._tries.values()), default=None)
        if version == self._seen and (due is None or due > now):
            return due
        self._seen = version
        self._cluster.look()
        waiting = [each for each in self._cluster.all(PODS) if is_waiting(each)]
        self._forget({each["metadata"]["uid"] for each in waiting})
        for pod in sorted(waiting, key=turn):
            tried = self._tries.get(pod["metadata"]["uid"])
            changed = self._cluster.api.version_of(PODS, NODES)
            if tried is None or (now >= tried.at and (tried.version != changed or now >= tried.at + FLUSH)):
                self._try(pod, now)
        changed = self._cluster.api.version_of(PODS, NODES)
        moves = [max(now, each.at) for each in self._tries.values() if each.version != changed]
        flushes = [each.at + FLUSH for each in self._tries.values()]
        return min(moves + flushes, default=None)

    def _try(self, pod: Raw, now: datetime) -> None:
        self._cluster.look()
        metadata = pod["metadata"]
        found, why = self._chosen(pod)
        if found is not None:
            body = {"target": {"kind": "Node", "name": found["metadata"]["name"]}}
            path = PODS.sub("binding").path(metadata["namespace"], metadata["name"])
            try:
                self._client.request("POST", path, body=body, type=bytes)
            except KubeError:
                found = None
        if found is None:
            self._refuse(pod, why, now)

    def _refuse(self, pod: Raw, why: str, now: datetime) -> None:
        metadata = pod["metadata"]
        held = condition(pod, "PodScheduled")
        told = {"reason": "Unschedulable", "message": why}
        is_new = held is None or any(held.get(key) != value for key, value in told.items())
        present = self._cluster.get((PODS, metadata["namespace"], metadata["name"]))
        if why and is_new and present is not None and present["metadata"]["uid"] == metadata["uid"]:
            conditions = (present.get("status") or {}).get("conditions") or []
            new = with_condition(conditions, "PodScheduled", "False", now, **told)
            self._cluster.api.edit(
                PODS,
                metadata["name"],
                {"status": {"conditions": new}},
                metadata["namespace"],
                manager=MANAGER,
            )
        before = self._tries.get(metadata["uid"])
        count = before.count + 1 if before else 1
        delay = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** (count - 1))
        # A Binding that fails is tried again though nothing has changed.
        version = self._cluster.api.version_of(PODS, NODES) if why else -1
        self._tries[metadata["uid"]] = Try(count, now + timedelta(seconds=delay), version)

    def _chosen(self, pod: Raw) -> tuple[Raw | None, str]:
        nodes = self._cluster.all(NODES)
        wanted = self._requested(pod)
        refused: Counter[str] = Counter()
        fitting: list[tuple[Raw, Decimal]] = []
        for node in nodes:
            reasons, free = self._judged(pod, wanted, node)
            refused.update(reasons)
            if not reasons:
                fitting.append((node, free))
        if not fitting:
            told = ", ".join(sorted(f"{count} {reason}" for reason, count in refused.items()))
            return (
                None,
                f"0/{len(nodes)} nodes are available: {told}."
                if nodes
                else "no nodes available to schedule pods",
            )
        return self._best(pod, fitting), ""

    def _judged(self, pod: Raw, wanted: Counter[str], node: Raw) -> tuple[list[str], Decimal]:
        """Why it does not fit; or how free the node is then, of 100."""
        spec = pod["spec"]
        if (node.get("spec") or {}).get("unschedulable") and not untaintable(spec):
            return ["node(s) were unschedulable"], Decimal(0)
        if taint := untolerated(spec, node, (NO_SCHEDULE, NO_EXECUTE)):
            return [
                f"node(s) had untolerated taint(s) {{{taint['key']}: {taint.get('value', '')}}}"
            ], Decimal(0)
        if not matches_node(spec, node):
            return ["node(s) didn't match Pod's node affinity/selector"], Decimal(0)
        beside = [each for each in self._cluster.pods_on(node["metadata"]["name"]) if not is_ended(each)]
        ports = host_ports(spec)
        if ports and any(ports & host_ports(each["spec"]) for each in beside):
            return ["node(s) didn't have free ports for the requested pod ports"], Decimal(0)
        used: Counter[str] = Counter()
        for each in beside:
            used.update(self._requested(each))
        room = allocatable(node)
        short = short_of(wanted, used, len(beside), room)
        if short:
            return [
                f"Too many {each}" if each == "pods" else f"Insufficient {each}" for each in short
            ], Decimal(0)
        shares = [
            100 * (room[name] - used[name] - wanted[name]) / room[name]
            for name in ("cpu", "memory")
            if room.get(name)
        ]
        return [], sum(shares, Decimal(0)) / max(1, len(shares))

    def _best(self, pod: Raw, fitting: list[tuple[Raw, Decimal]]) -> Raw:
        """Of the highest score; which of several is chance."""
        spec = pod["spec"]
        disliked = [sum(is_disliked(spec, taint) for taint in taints_of(node)) for node, _ in fitting]
        preferred = [preference(spec, node) for node, _ in fitting]
        most_disliked, most_preferred = max(1, *disliked, 1), max(1, *preferred, 1)
        scores = [
            int(free)
            + TAINT_WEIGHT * (100 - 100 * dislikes // most_disliked)
            + AFFINITY_WEIGHT * (100 * likes // most_preferred)
            for (_, free), dislikes, likes in zip(fitting, disliked, preferred, strict=True)
        ]
        best = [node for (node, _), score in zip(fitting, scores, strict=True) if score == max(scores)]
        return self._dice.choice(best)

    def _requested(self, pod: Raw) -> Counter[str]:
        uid = pod["metadata"]["uid"]
        if uid not in self._requests:
            self._requests[uid] = requests_of(pod["spec"])
        return self._requests[uid]

    def _forget(self, waiting: set[str]) -> None:
        for uid in self._tries.keys() - waiting:
            del self._tries[uid]


def is_waiting(pod: Raw) -> bool:
    spec = pod["spec"]
    is_ours = spec.get("schedulerName", NAME) == NAME and not spec.get("nodeName")
    return is_ours and not spec.get("schedulingGates") and not is_deleted(pod) and not is_ended(pod)


def turn(pod: Raw) -> tuple[int, str, str]:
    metadata = pod["metadata"]
    return -pod["spec"].get("priority", 0), metadata["creationTimestamp"], metadata["name"]


def untaintable(spec: Raw) -> bool:
    """Whether it goes to cordoned nodes, too."""
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": NO_SCHEDULE}
    return any(tolerates(each, cordon) for each in spec.get("tolerations") or ())


def is_disliked(spec: Raw, taint: Raw) -> bool:
    return taint["effect"] == "PreferNoSchedule" and not any(
        tolerates(each, taint) for each in spec.get("tolerations") or ()
    )


def preference(spec: Raw, node: Raw) -> int:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return sum(each["weight"] for each in terms if matches_term(each["preference"], node))
