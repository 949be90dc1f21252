"""PodDisruptionBudgets: which evictions they allow.

https://kubernetes.io/docs/tasks/run-application/configure-pdb/
https://github.com/kubernetes/kubernetes/blob/master/pkg/registry/core/pod/storage/eviction.go
The real one reads a count that the disruption controller keeps, and so refuses somewhat longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dev.fake_api import FakeAPI
from dev.simulator.models.cluster import REPLICA_SETS, controller_of
from dev.simulator.models.pods import is_deleted, is_ended, is_ready
from kube.client import Resource
from kube.resources import PODS, STATEFUL_SETS

Raw = dict[str, Any]
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets")
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


class Budgets:
    def __init__(self, api: FakeAPI) -> None:
        self._api = api

    def refusal(self, pod: Raw) -> str:
        """ "" when it may be evicted; a pod that ended, or does not run yet, always may."""
        if is_ended(pod) or is_deleted(pod) or pod.get("status", {}).get("phase") == "Pending":
            return ""
        for budget in self._api.peek(BUDGETS):
            if _matches(budget, pod):
                pods = [each for each in self._api.peek(PODS) if _matches(budget, each)]
                healthy = sum(is_ready(each) and not is_deleted(each) for each in pods)
                if healthy - is_ready(pod) < self._wanted(budget["spec"], pods):
                    return REFUSED
        return ""

    def _wanted(self, spec: Raw, pods: list[Raw]) -> int:
        """How many must stay healthy; numbers only, no percentages."""
        if "minAvailable" in spec:
            return int(spec["minAvailable"])
        owners = {controller_of(each) for each in pods}
        expected = sum(
            each["spec"]["replicas"] for each in self._scaled() if each["metadata"]["uid"] in owners
        )
        return max(0, int(expected) - int(spec["maxUnavailable"]))

    def _scaled(self) -> Iterator[Raw]:
        yield from self._api.peek(REPLICA_SETS)
        yield from self._api.peek(STATEFUL_SETS)


def _matches(budget: Raw, pod: Raw) -> bool:
    wanted = budget["spec"]["selector"]["matchLabels"]
    is_here = budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return bool(is_here and wanted.items() <= (pod["metadata"].get("labels") or {}).items())
