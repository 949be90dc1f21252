"""Whether a PodDisruptionBudget refuses an eviction: as the API server decides, after admission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kube.resources import Resource
from kube.selectors import LabelSelector, selects_labels
from kube.types import Value

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets")
UNREADABLE = "not known: you may not list PodDisruptionBudgets"
ALWAYS = "AlwaysAllow"
Raw = Mapping[str, Any]


class BudgetSpec(Value, frozen=True):
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class BudgetStatus(Value, frozen=True):
    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class BudgetMeta(Value, frozen=True):
    name: str = ""
    generation: int = 0


class Budget(Value, frozen=True):
    metadata: BudgetMeta = BudgetMeta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


def refusal(pod: Raw, budgets: Sequence[Budget] | None) -> str:
    """Why the eviction of *pod* is refused, or why that is not known; *budgets* are those of its namespace."""
    if _goes_anyway(pod):
        return ""
    if budgets is None:
        return UNREADABLE
    labels = pod["metadata"].get("labels") or {}
    found = [each for each in budgets if selects_labels(each.spec.selector, labels)]
    if len(found) > 1:
        names = ", ".join(each.metadata.name for each in found)
        return f"more than one PodDisruptionBudget selects the pod, and none may be evicted then: {names}"
    return _refusal(pod, found[0]) if found else ""


def _refusal(pod: Raw, budget: Budget) -> str:
    name, status = budget.metadata.name, budget.status
    if not _is_ready(pod):
        in_budget = 0 < status.desired_healthy <= status.current_healthy
        if in_budget or budget.spec.unhealthy_pod_eviction_policy == ALWAYS:
            return ""
    if status.observed_generation < budget.metadata.generation:
        return f"PodDisruptionBudget {name} has changed, and its disruptions are still to be counted"
    if status.disruptions_allowed > 0:
        return ""
    counts = f"needs {status.desired_healthy} healthy pods and has {status.current_healthy}"
    return f"PodDisruptionBudget {name} allows no disruption: it {counts}"


def _goes_anyway(pod: Raw) -> bool:
    phase = pod.get("status", {}).get("phase")
    return phase in ("Pending", "Succeeded", "Failed") or bool(pod["metadata"].get("deletionTimestamp"))


def _is_ready(pod: Raw) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
