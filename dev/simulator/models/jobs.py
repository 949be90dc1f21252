"""The controller of Jobs: as many pods as are still to succeed, and no more at a time than *parallelism*.

https://kubernetes.io/docs/concepts/workloads/controllers/job/ Without back-off, deadlines, suspension and indexes.
"""

from __future__ import annotations

from datetime import datetime

from dev.simulator.models.cluster import JOBS, Cluster, Raw
from dev.simulator.models.controller import Controller, Spawn, at_once
from dev.simulator.models.pods import is_active, is_deleted, stamp
from dev.simulator.models.replica_sets import pod_of
from kube.resources import PODS


class Jobs(Controller):
    def __init__(self, cluster: Cluster, spawn: Spawn = at_once) -> None:
        super().__init__(cluster, JOBS, PODS, spawn=spawn)

    def reconcile(self, raw: Raw, now: datetime) -> None:
        pods = self.cluster.controlled(raw["metadata"]["uid"], PODS)
        active = sum(map(is_active, pods))
        succeeded = sum(each.get("status", {}).get("phase") == "Succeeded" for each in pods)
        left = raw["spec"]["completions"] - succeeded
        if not is_deleted(raw):
            for _ in range(min(left, raw["spec"]["parallelism"]) - active):
                self.client.create(PODS, pod_of(raw, raw["spec"]["template"]), raw["metadata"]["namespace"])
        status: Raw = {"active": active, "succeeded": succeeded}
        if left <= 0:
            held = (raw.get("status") or {}).get("conditions") or []
            status["conditions"] = held or [
                {"type": "Complete", "status": "True", "lastTransitionTime": stamp(now)}
            ]
        self.set_status(raw, status)
