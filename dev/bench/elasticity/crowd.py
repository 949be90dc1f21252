"""Many Deployments are created at once, and their pods are watched until the last one runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import Empty
from typing import Any

from api.elasticity import LOCAL_REPLICAS, PLACEMENT
from dev.lab.errors import LabError
from dev.lab.session import Lab
from dev.lab.watching import Observations, WatchLost, watching
from kube.resources import DEPLOYMENTS, PODS
from kube.types import Pod

NAMESPACE = "default"
SIZE, LOCAL = 100, 10
"""Replicas of each Deployment, and how many of them are local when it says so."""
OURS = {LOCAL_REPLICAS: str(LOCAL)}
"""The annotation that says so."""
PATIENCE = 300.0
CROWD, OF = "crowd", "deployment"
"""Labels of the pods."""


@dataclass(frozen=True)
class Crowd:
    """So *many* Deployments; their pods have its *name* as a label, and *annotations*."""

    name: str
    many: int
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.many * SIZE


@dataclass(frozen=True)
class Course:
    """When a pod was seen first, when with its placement, when with its node, and when it ran."""

    pod: Pod
    born: datetime
    placed: datetime | None = None
    bound: datetime | None = None
    running: datetime | None = None

    @property
    def deployment(self) -> str:
        return self.pod.metadata.labels[OF]

    @property
    def is_local(self) -> bool:
        return not self.pod.spec.node_name.startswith("eklet-")


@dataclass(frozen=True)
class Arrival:
    """*begin* is the first request's time."""

    begin: datetime
    courses: Sequence[Course]


def arrive(lab: Lab, crowd: Crowd) -> Arrival:
    """Back when all pods run."""
    with watching(lab.client, {PODS: Pod}) as observations:
        begin = datetime.now(UTC)
        for number in range(crowd.many):
            lab.client.create(DEPLOYMENTS, manifest(crowd, number), NAMESPACE)
        return Arrival(begin, followed(observations, crowd, time.monotonic() + PATIENCE))


def manifest(crowd: Crowd, number: int) -> dict[str, Any]:
    """Deployment *number* of the crowd, as plain as a user may write it."""
    labels = {CROWD: crowd.name, OF: f"{crowd.name}-{number}"}
    template = {
        "metadata": {"labels": labels, "annotations": dict(crowd.annotations)},
        "spec": {"containers": [{"name": "web", "image": "nginx", "ports": [{"containerPort": 80}]}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": labels[OF]},
        "spec": {"replicas": SIZE, "selector": {"matchLabels": labels}, "template": template},
    }


def leave(lab: Lab, crowd: Crowd) -> None:
    """Back when none of its pods is left."""
    for number in range(crowd.many):
        lab.client.delete(DEPLOYMENTS, f"{crowd.name}-{number}", NAMESPACE)
    lab.wait(lambda: not _pods(lab, crowd), PATIENCE, f"the pods of {crowd.name} to be gone")


def _pods(lab: Lab, crowd: Crowd) -> Sequence[Any]:
    return lab.client.list(PODS, NAMESPACE, label_selector=f"{CROWD}={crowd.name}").items


def followed(observations: Observations, crowd: Crowd, deadline: float) -> list[Course]:
    """The courses of all its pods, when the last one runs; LabError when some do not by *deadline*."""
    courses: dict[str, Course] = {}
    running = 0
    while running < crowd.size:
        try:
            seen = observations.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise LabError(f"{running} of {crowd.size} pods ran in time; {len(courses)} were seen") from None
        if isinstance(seen, WatchLost):
            raise seen
        pod = seen.object
        if isinstance(pod, Pod) and pod.metadata.labels.get(CROWD) == crowd.name:
            before = courses.get(pod.metadata.uid)
            courses[pod.metadata.uid] = now = gone_on(before, pod, seen.seen)
            running += now.running is not None and (before is None or before.running is None)
    return list(courses.values())


def gone_on(before: Course | None, pod: Pod, at: datetime) -> Course:
    """Each time is that of the first event."""
    known = before or Course(pod, at)
    return Course(
        pod,
        known.born,
        known.placed or (at if PLACEMENT in pod.metadata.annotations else None),
        known.bound or (at if pod.spec.node_name else None),
        known.running or (at if pod.status.phase == "Running" else None),
    )
