"""The controller of ReplicaSets; it adopts no pods, and deletes the newest where the real one knows buckets of ages.

https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/replicaset/replica_set.go
https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/controller_utils.go (ActivePodsWithRanks)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dev.simulator.models.cluster import REPLICA_SETS, Cluster, Raw, controlled_by
from dev.simulator.models.controller import Controller, Spawn, at_once
from dev.simulator.models.pods import (
    condition,
    is_active,
    is_available,
    is_deleted,
    is_ready,
    next_available,
    time_of,
    with_condition,
)
from kube.errors import KubeError
from kube.resources import PODS

COST = "controller.kubernetes.io/pod-deletion-cost"
PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReplicaSets(Controller):
    def __init__(self, cluster: Cluster, spawn: Spawn = at_once) -> None:
        super().__init__(cluster, REPLICA_SETS, PODS, spawn=spawn)

    def reconcile(self, raw: Raw, now: datetime) -> datetime | None:
        pods = [each for each in self.cluster.controlled(raw["metadata"]["uid"], PODS) if is_active(each)]
        failure: KubeError | None = None
        if not is_deleted(raw):
            try:
                self._manage(raw, pods)
            except KubeError as error:
                failure = error
        self._report(raw, pods, now, failure, len(pods) < raw["spec"]["replicas"])
        if failure is not None:
            raise failure
        return next_available(pods, raw["spec"].get("minReadySeconds", 0), now)

    def _manage(self, raw: Raw, pods: Sequence[Raw]) -> None:
        missing = raw["spec"]["replicas"] - len(pods)
        for _ in range(missing):
            self.client.create(PODS, pod_of(raw, raw["spec"]["template"]), raw["metadata"]["namespace"])
        for each in self._ranked(raw, pods)[: max(0, -missing)]:
            self.delete(PODS, each)

    def _ranked(self, raw: Raw, pods: Sequence[Raw]) -> list[Raw]:
        """Those that go first; a pod is rather deleted where others of the same Deployment are."""
        beside: dict[str, int] = {}
        for owner in raw["metadata"].get("ownerReferences") or ():
            for each in self.cluster.controlled(owner["uid"], REPLICA_SETS):
                for pod in self.cluster.controlled(each["metadata"]["uid"], PODS):
                    node = pod["spec"].get("nodeName", "")
                    beside[node] = beside.get(node, 0) + is_active(pod)

        def rank(pod: Raw) -> tuple[Any, ...]:
            status = pod.get("status") or {}
            node = pod["spec"].get("nodeName", "")
            ready = condition(pod, "Ready") if is_ready(pod) else None
            since = time_of(ready["lastTransitionTime"]).timestamp() if ready else 0.0
            restarts = sum(each.get("restartCount", 0) for each in status.get("containerStatuses") or ())
            created = time_of(pod["metadata"]["creationTimestamp"]).timestamp()
            phase, cost = PHASES.get(status.get("phase", ""), 0), deletion_cost(pod)
            name = pod["metadata"]["name"]
            return (
                node != "",
                phase,
                ready is not None,
                cost,
                -beside.get(node, 0),
                -since,
                -restarts,
                -created,
                name,
            )

        return sorted(pods, key=rank)

    def _report(
        self, raw: Raw, pods: Sequence[Raw], now: datetime, failure: KubeError | None, is_short: bool
    ) -> None:
        labels = raw["spec"]["template"]["metadata"].get("labels", {}).items()
        least = raw["spec"].get("minReadySeconds", 0)
        conditions = (raw.get("status") or {}).get("conditions") or []
        if failure is not None and condition(raw, "ReplicaFailure") is None:
            reason = "FailedCreate" if is_short else "FailedDelete"
            conditions = with_condition(
                conditions, "ReplicaFailure", "True", now, reason=reason, message=str(failure)
            )
        elif failure is None:
            conditions = [each for each in conditions if each["type"] != "ReplicaFailure"]
        status = {
            "replicas": len(pods),
            "fullyLabeledReplicas": sum(labels <= each["metadata"]["labels"].items() for each in pods),
            "readyReplicas": sum(map(is_ready, pods)),
            "availableReplicas": sum(is_available(each, least, now) for each in pods),
            "observedGeneration": raw["metadata"]["generation"],
            "conditions": conditions,
        }
        self.set_status(raw, status)


def deletion_cost(pod: Raw) -> int:
    try:
        return int((pod["metadata"].get("annotations") or {}).get(COST, "0"))
    except ValueError:
        return 0


def pod_of(owner: Raw, template: Raw, **metadata: Any) -> Raw:
    """The pod that a controller makes of a template."""
    given = template.get("metadata") or {}
    kept = {name: given[name] for name in ("labels", "annotations", "finalizers") if given.get(name)}
    name = {"generateName": f"{owner['metadata']['name']}-"} if "name" not in metadata else {}
    metadata["labels"] = {**kept.pop("labels", {}), **metadata.pop("labels", {})}
    return {
        "metadata": {**kept, **name, **metadata, "ownerReferences": [controlled_by(owner)]},
        "spec": template["spec"],
    }
