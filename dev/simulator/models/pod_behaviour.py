"""What the image of a pod's containers makes of it, and how a kubelet writes that down.

https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from random import Random
from typing import Any

from dev.simulator.models.pods import condition, stamp, with_condition

Raw = dict[str, Any]
CRASHES_AFTER = 15.0
"""Seconds for which `crashing` is ready."""
FIRST_RESTART, LONGEST_RESTART = 10.0, 300.0
"""Seconds between a container's end and its next start."""


class Stage(StrEnum):
    SEEN = "seen"
    STARTING = "starting"
    RUNNING = "running"
    READY = "ready"
    DOWN = "down"
    """Between the end of its container and the next start."""
    STOPPING = "stopping"
    ENDED = "ended"


def image_of(pod: Raw) -> str:
    """The name of the first container's image, without registry and tag."""
    return str(pod["spec"]["containers"][0]["image"]).rpartition("/")[2].partition(":")[0]


def lasts(pod: Raw, dice: Random) -> float | None:
    """Seconds from its readiness to its end by itself."""
    if image_of(pod) == "crashing":
        return CRASHES_AFTER
    return dice.uniform(20, 60) if image_of(pod) == "ending" else None


def becomes_ready(pod: Raw) -> bool:
    return image_of(pod) != "never-ready"


def restart_delay(restarts: int) -> float:
    return float(min(LONGEST_RESTART, FIRST_RESTART * 2 ** max(0, restarts - 1)))


def stops_within(pod: Raw, dice: Random) -> float:
    """Seconds from SIGTERM to the end; `stubborn` waits for SIGKILL."""
    grace = float(pod["metadata"].get("deletionGracePeriodSeconds", 0))
    return grace if image_of(pod) == "stubborn" else min(grace, dice.uniform(0.1, 3.0))


def status_of(
    pod: Raw, stage: Stage, now: datetime, restarts: int, address: str, host: str, phase: str = ""
) -> Raw:
    """The parts of its status that its kubelet writes."""
    runs, ready = stage in (Stage.RUNNING, Stage.READY), stage is Stage.READY
    held = pod.get("status") or {}
    has_ended = bool(phase)
    if not phase:
        phase = "Pending" if stage is Stage.STARTING and not restarts else "Running"
    conditions: Sequence[Raw] = held.get("conditions") or []
    gates = pod["spec"].get("readinessGates") or ()
    closed = [each["conditionType"] for each in gates if not _is_true(pod, each["conditionType"])]
    why = "" if ready and not closed else "ReadinessGatesNotReady" if ready else "ContainersNotReady"
    ends = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}
    why = ends.get(phase, why)
    for kind, is_true in (
        ("PodScheduled", True),
        ("PodReadyToStartContainers", bool(address)),
        ("Initialized", True),
        ("ContainersReady", ready),
        ("Ready", ready and not closed),
    ):
        conditions = with_condition(conditions, kind, str(is_true), now, reason="" if is_true else why)
    status: Raw = {
        "phase": phase,
        "startTime": held.get("startTime") or stamp(now),
        "hostIP": host,
        "conditions": conditions,
        "containerStatuses": _containers(pod, stage, now, restarts, runs=runs, ready=ready, phase=phase),
    }
    if address:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    elif not has_ended:
        status |= {"podIP": None, "podIPs": None}  # after a boot, until it has a sandbox again
    return status


def _is_true(pod: Raw, kind: str) -> bool:
    found = condition(pod, kind)
    return found is not None and found["status"] == "True"


def _containers(
    pod: Raw, stage: Stage, now: datetime, restarts: int, *, runs: bool, ready: bool, phase: str
) -> list[Raw]:
    held = {each["name"]: each for each in (pod.get("status") or {}).get("containerStatuses") or ()}

    def state(old: Raw) -> Raw:
        before = old.get("state") or {}
        if phase in ("Succeeded", "Failed"):
            code = 0 if phase == "Succeeded" else 137
            reason = "Completed" if phase == "Succeeded" else "Error"
            new = {"exitCode": code, "reason": reason, "finishedAt": stamp(now)}
            return before if "terminated" in before else {"terminated": new}
        if stage is Stage.DOWN:
            return {
                "waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}
            }
        if not runs:
            return {"waiting": {"reason": "ContainerCreating"}}
        is_same = "running" in before and old.get("restartCount") == restarts
        return before if is_same else {"running": {"startedAt": stamp(now)}}

    return [
        {
            "name": each["name"],
            "image": each["image"],
            "imageID": "",
            "ready": ready,
            "started": runs,
            "restartCount": restarts,
            "state": state(held.get(each["name"], {})),
        }
        for each in pod["spec"]["containers"]
    ]


Note = Callable[[str, str], object]
