"""One IngressDaemonSet on all nodes: it comes, it rests while they send their heartbeats, and it is changed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from api.health_checks import deployment_name
from api.ingress_daemonset import INGRESS_DAEMONSETS
from dev.bench.ingress_daemonset.floor import PATIENCE, at_once
from dev.bench.ingress_daemonset.manifests import NAME, NEW, containers
from dev.bench.ingress_daemonset.progress import Creation, Made, Rollout, follow, watching
from dev.lab.session import Lab
from kube.resources import NODES
from kube.transport import STRATEGIC_PATCH, Typed

SETTLED = 300.0
BEATS = 5
"""As many from each node, at least: in ten minutes a kubelet without news sends two or three."""


@dataclass(frozen=True)
class Rest:
    """So many *seconds*, and heartbeats of all nodes together."""

    seconds: float
    heartbeats: int


@dataclass(frozen=True)
class Rolled:
    """*most_off* is the most nodes that were seen detached at a time."""

    seconds: float
    most_off: int


def create(lab: Lab, wanted: dict[str, Any], size: int) -> Made:
    namespace, course = wanted["metadata"]["namespace"], Creation(size)
    with watching(lab.client, namespace) as observed:
        begin = time.monotonic()
        lab.client.create(INGRESS_DAEMONSETS, wanted, namespace)
        follow(observed, course, "Deployments of ours become available", begin + PATIENCE)
    return course.since(begin)


def settle(lab: Lab, namespace: str, size: int) -> None:
    """Back when the status shows that all is done."""

    def observed() -> bool:
        status = lab.client.get(INGRESS_DAEMONSETS, NAME, namespace).get("status", {})
        counts = [status.get(f"{each}Nodes") for each in ("desired", "updated", "ready")]
        return counts == [size] * 3 and not status.get("waitingFor")

    lab.wait(
        observed, SETTLED, f"the status of {namespace}/{NAME} to be that of {size} nodes that are served"
    )


def rest(lab: Lab, nodes: Sequence[str], seconds: float) -> Rest:
    """Nothing happens but what kubelets report all the time."""
    begin = time.monotonic()
    for beat in range(BEATS):
        at_once(lambda name: _beat(lab, name), nodes)
        left = begin + (beat + 1) * seconds / BEATS - time.monotonic()
        time.sleep(max(0.0, left))  # the measurement's length
    return Rest(time.monotonic() - begin, BEATS * len(nodes))


def roll_out(lab: Lab, namespace: str, nodes: Sequence[str]) -> Rolled:
    """To a new template, without any grace."""
    course = Rollout(NEW, [deployment_name(NAME, node) for node in nodes], nodes)
    with watching(lab.client, namespace) as observed:
        begin = time.monotonic()
        change = {"spec": {"template": {"spec": {"containers": containers(NEW)}}}}
        lab.client.patch(INGRESS_DAEMONSETS, NAME, change, namespace)
        follow(observed, course, "Deployments of ours are rolled out", begin + PATIENCE)
    return Rolled(course.ended_at - begin, course.most_off)


def _beat(lab: Lab, node: str) -> None:
    ready = {"type": "Ready", "lastHeartbeatTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
    status = {"status": {"conditions": [ready]}}
    lab.client.patch(NODES.sub("status"), node, Typed(STRATEGIC_PATCH, status), type=msgspec.Raw)
