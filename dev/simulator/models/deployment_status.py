"""The status of a Deployment: counts, and the conditions Available and Progressing.

https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/deployment/progress.go
https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/deployment/sync.go (calculateStatus)
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from dev.simulator.models.cluster import Raw
from dev.simulator.models.pods import condition, is_deleted, stamp, time_of, with_condition

if TYPE_CHECKING:
    from dev.simulator.models.controller import Controller
    from dev.simulator.models.rollout import Rollout

NO_DEADLINE = 2**31 - 1
AVAILABLE, LATE = "NewReplicaSetAvailable", "ProgressDeadlineExceeded"


def status(rollout: Rollout, now: datetime) -> tuple[Raw, datetime | None]:
    """And when it is due again: at its deadline."""
    new = counts(rollout)
    conditions = list((rollout.raw.get("status") or {}).get("conditions") or ())
    is_up = new["availableReplicas"] >= rollout.replicas - rollout.max_unavailable
    reason = "MinimumReplicasAvailable" if is_up else "MinimumReplicasUnavailable"
    text = f"Deployment {'has' if is_up else 'does not have'} minimum availability."
    conditions = _set(conditions, "Available", str(is_up), now, reason, text)
    conditions = _failures(rollout, conditions)
    if not is_deleted(rollout.raw):
        conditions = _progress(rollout, new, conditions, now)
    new["conditions"] = conditions
    return new, _deadline(rollout, conditions, now)


def counts(rollout: Rollout) -> Raw:
    def total(name: str) -> int:
        return sum((each.get("status") or {}).get(name, 0) for each in rollout.sets)

    asked = sum(each["spec"]["replicas"] for each in rollout.sets)
    return {
        "observedGeneration": rollout.raw["metadata"]["generation"],
        "replicas": total("replicas"),
        "updatedReplicas": ((rollout.new or {}).get("status") or {}).get("replicas", 0),
        "readyReplicas": total("readyReplicas"),
        "availableReplicas": total("availableReplicas"),
        "unavailableReplicas": max(0, asked - total("availableReplicas")),
        "collisionCount": (rollout.raw.get("status") or {}).get("collisionCount"),
    }


def is_complete(rollout: Rollout) -> bool:
    new, wanted = counts(rollout), rollout.replicas
    return bool(new["updatedReplicas"] == new["replicas"] == new["availableReplicas"] == wanted)


def note_created(controller: Controller, rollout: Rollout, now: datetime) -> None:
    """Progress begins when the new ReplicaSet is there."""
    assert rollout.new is not None
    text = f'Created new replica set "{rollout.new["metadata"]["name"]}"'
    conditions = list((rollout.raw.get("status") or {}).get("conditions") or ())
    conditions = _set(conditions, "Progressing", "True", now, "NewReplicaSetCreated", text)
    controller.edit(rollout.raw, {"status": {"conditions": conditions}})


def _progress(rollout: Rollout, new: Raw, conditions: list[Raw], now: datetime) -> list[Raw]:
    if rollout.spec.get("progressDeadlineSeconds", NO_DEADLINE) == NO_DEADLINE:
        return [each for each in conditions if each["type"] != "Progressing"]
    held = condition(rollout.raw, "Progressing")
    reason = held.get("reason", "") if held else ""
    if rollout.spec.get("paused"):
        if reason in ("DeploymentPaused", LATE):
            return conditions
        return _set(conditions, "Progressing", "Unknown", now, "DeploymentPaused", "Deployment is paused")
    if reason == "DeploymentPaused":
        return _set(conditions, "Progressing", "Unknown", now, "DeploymentResumed", "Deployment is resumed")
    if new["replicas"] == new["updatedReplicas"] and reason == AVAILABLE:
        return conditions
    about = f'ReplicaSet "{rollout.new["metadata"]["name"]}"' if rollout.new else "Deployment"
    if is_complete(rollout):
        return _set(
            conditions, "Progressing", "True", now, AVAILABLE, f"{about} has successfully progressed."
        )
    if _has_progressed(rollout.raw.get("status") or {}, new):
        return _set(
            conditions,
            "Progressing",
            "True",
            now,
            "ReplicaSetUpdated",
            f"{about} is progressing.",
            renew=True,
        )
    if held and reason not in (AVAILABLE, LATE) and now > _ends(rollout, held):
        return _set(conditions, "Progressing", "False", now, LATE, f"{about} has timed out progressing.")
    return conditions


def _has_progressed(old: Raw, new: Raw) -> bool:
    def before(name: str) -> int:
        return int(old.get(name, 0))

    return bool(
        new["updatedReplicas"] > before("updatedReplicas")
        or new["replicas"] - new["updatedReplicas"] < before("replicas") - before("updatedReplicas")
        or new["readyReplicas"] > before("readyReplicas")
        or new["availableReplicas"] > before("availableReplicas")
    )


def _failures(rollout: Rollout, conditions: list[Raw]) -> list[Raw]:
    """That pods cannot be created, as the ReplicaSets say it."""
    others = [each for each in conditions if each["type"] != "ReplicaFailure"]
    for each in (rollout.new, *rollout.old):
        if each and (found := condition(each, "ReplicaFailure")):
            return [*others, {**found, "lastUpdateTime": found["lastTransitionTime"]}]
    return others


def _deadline(rollout: Rollout, conditions: list[Raw], now: datetime) -> datetime | None:
    held = next((each for each in conditions if each["type"] == "Progressing"), None)
    if held is None or held["reason"] in (AVAILABLE, LATE) or rollout.spec.get("paused"):
        return None
    return max(now, _ends(rollout, held)) + timedelta(seconds=1)


def _ends(rollout: Rollout, held: Raw) -> datetime:
    since = held.get("lastUpdateTime") or held["lastTransitionTime"]
    return time_of(since) + timedelta(seconds=rollout.spec["progressDeadlineSeconds"])


def _set(
    conditions: list[Raw],
    kind: str,
    status: str,
    now: datetime,
    reason: str,
    message: str,
    *,
    renew: bool = False,
) -> list[Raw]:
    held = next((each for each in conditions if each["type"] == kind), None)
    if held and (held["status"], held.get("reason")) == (status, reason) and not renew:
        return conditions
    return with_condition(
        conditions, kind, status, now, reason=reason, message=message, lastUpdateTime=stamp(now)
    )
