"""Drawbridge's own processes, to be ended and counted."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Any

from dev.judge.observation import is_ready
from dev.lab.errors import LabError
from dev.lab.killing import kill_pod
from dev.lab.session import Lab
from kube.errors import NotFound
from kube.resources import LEASES, PODS
from tests.cluster.workloads import pods_of_component

NAMESPACE = "drawbridge"


def all_pods(lab: Lab) -> set[str]:
    """Their names, those on their way out included."""
    return {pod["metadata"]["name"] for pod in lab.client.list(PODS, NAMESPACE).items}


def pods(lab: Lab, component: str) -> dict[str, dict[str, Any]]:
    """The pods of a component of the chart that are not on their way out, by name."""
    found = pods_of_component(lab, component)
    return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}


def ready(lab: Lab, component: str) -> list[str]:
    return sorted(name for name, pod in pods(lab, component).items() if is_ready(pod))


def await_ready(lab: Lab, component: str, count: int = 2) -> None:
    lab.wait(lambda: len(ready(lab, component)) == count, 90, f"{count} pods of {component} to be ready")


def exit_code(lab: Lab, component: str, name: str) -> int | None:
    """Of the process that ran before, if there was one."""
    [status] = pods(lab, component)[name]["status"]["containerStatuses"]
    ended = [status[when].get("terminated") for when in ("lastState", "state") if when in status]
    return next((each["exitCode"] for each in ended if each), None)


def leader(lab: Lab) -> str:
    """The pod that holds the lease, or nothing."""
    spec = lab.client.get(LEASES, "drawbridge", NAMESPACE).get("spec", {})
    return str(spec.get("holderIdentity") or "").split("_")[0]


def another_leader(lab: Lab, than: str) -> str:
    return lab.wait(lambda: {leader(lab)} - {"", than}, 60, f"another leader than {than}").pop()


def kill(lab: Lab, name: str, number: signal.Signals = signal.SIGKILL) -> None:
    kill_pod(lab, NAMESPACE, name, number)


def delete(lab: Lab, name: str) -> None:
    """Its process gets SIGTERM, and another pod takes its place."""
    lab.client.delete(PODS, name, NAMESPACE)


def kill_for_good(lab: Lab, pod: str) -> None:
    """Another pod takes its place, and not the same one after a pause."""
    with suppress(LabError):  # it has just come to its end by itself
        kill(lab, pod)
    with suppress(NotFound):
        lab.client.delete(PODS, pod, NAMESPACE, grace_seconds=0)
