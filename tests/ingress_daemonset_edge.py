"""An edge as its load balancer sees it: pods start, crash and come back, and health checks are answered."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from healthchecker import SCHEDULED
from healthchecker.checker import Deployment, fault_of
from healthchecker.config import Config
from tests.ingress_daemonset_rolling import Rolling, record
from tests.ingress_daemonset_world import DETACHED, World, is_ready
from webhook.ingress_daemonset import TO_BE_UPDATED

Raw = dict[str, Any]
NODES = tuple(f"n{number}" for number in range(1, 7))
PORT = 10080


@dataclass(frozen=True)
class Image:
    """Its pods *start* in so many seconds, crash after *lasts* seconds, and are started again, slower each time."""

    starts: float = 5
    lasts: float | None = None


@dataclass
class Pod:
    template: bytes
    ready_since: datetime | None
    changes_at: datetime | None
    """When it gets ready, or crashes."""
    crashes: int = 0

    def run(self, now: datetime, image: Image) -> None:
        if self.changes_at is None or self.changes_at > now:
            return
        if self.ready_since is None:
            self.ready_since = now
            self.changes_at = now + timedelta(seconds=image.lasts) if image.lasts is not None else None
        else:
            self.ready_since, self.crashes = None, self.crashes + 1
            pause = min(300, 10 * 2 ** (self.crashes - 1))
            self.changes_at = now + timedelta(seconds=pause + image.starts)


class Edge(Rolling):
    """Second by second; *room* is how many pods are ready at most, by node.

    No serving node is ever detached while others that do not serve use up the budget, and no pod is stopped there.
    """

    def __init__(
        self, *nodes: str, rolling: Raw | None = None, images: Mapping[str, Image] | None = None, **spec: Any
    ) -> None:
        self.images, self.pods_on = dict(images or {}), dict[str, list[Pod]]()
        self.room: dict[str, int] = {}
        self._began: dict[str, datetime] = {}
        """By name of a Deployment: when its last rollout began."""
        self.served: list[set[str]] = []
        """After each second: the nodes to which the load balancer sends requests."""
        self.limit = (rolling or {}).get("maxUnavailableNodes", 1)
        parts = {"maxUnavailableNodes": 1, "annotateNodeToDetach": None} | (rolling or {})
        super().__init__(*nodes, rolling=parts, healthCheckNodePorts=[PORT], **spec)
        self.served.clear()
        self.statuses.clear()

    def turn(self) -> None:
        record(self)
        before, marked = self.serving(), self.marked()
        planned = self.world.turn()
        if planned.status is not None:
            drains = {name: each for name, each in self.status.items() if name not in planned.status}
            kept = {
                name: each for name, each in drains.items() if name in ("drainRequests", "evictableNodes")
            }
            self.world.raw["status"] = {**planned.status, **kept}
            self.statuses.append(planned.status)
        taken, down = (self.marked() - marked) & before, self.world.nodes.keys() - before
        assert not taken or len(taken | down) <= self.limit, f"{taken} detached while {down} do not serve"
        self.world.later(1)
        self._run_pods()
        self.served.append(self.serving())

    def serving(self) -> set[str]:
        return {name for name in self.world.nodes if self.answers_200(name)} - self.world.off()

    def marked(self) -> set[str]:
        held = self.world.deployments
        return {name for name in self.world.nodes if SCHEDULED in _annotations(held.get(f"web-{name}"))}

    def answers_200(self, node: str) -> bool:
        held, owner = self.world.deployments.get(f"web-{node}"), "web"
        seen = msgspec.convert(copy.deepcopy(held), Deployment) if held else None
        return fault_of(seen, Config("edge", node, owner, PORT, TO_BE_UPDATED)) is None

    def _run_pods(self) -> None:
        """As the Deployment controller and the kubelets would, with a strategy that replaces all pods at once."""
        for name, held in self.world.deployments.items():
            self._reconcile(name, held)
        for name in self.pods_on.keys() - self.world.deployments.keys():
            del self.pods_on[name]

    def _reconcile(self, name: str, held: Raw) -> None:
        spec, pods = held["spec"], self.pods_on.setdefault(name, [])
        image = spec["template"]["spec"]["containers"][0]["image"]
        template = msgspec.json.encode(spec["template"])
        is_changed = any(each.template != template for each in pods)
        pods.sort(key=lambda each: each.ready_since is None)
        if stopped := pods if is_changed else pods[spec["replicas"] :]:
            node = spec["template"]["spec"]["nodeName"]
            assert not self.answers_200(node), f"pods are stopped on {node}, which serves"
            del pods[len(pods) - len(stopped) :]
        while len(pods) < spec["replicas"]:
            starts = self.images.get(image, Image()).starts
            pods.append(Pod(template, None, self.world.now + timedelta(seconds=starts)))
        node = self.world.nodes.get(spec["template"]["spec"]["nodeName"])
        room = self.room.get(name.removeprefix("web-"), len(pods)) if node and is_ready(node) else 0
        for each in pods[room:]:
            each.ready_since, each.changes_at = None, self.world.now
        for each in pods[:room]:
            each.run(self.world.now, self.images.get(image, Image()))
        held["status"] = self._status(held, pods, is_new=is_changed or "status" not in held)

    def _status(self, held: Raw, pods: list[Pod], *, is_new: bool) -> Raw:
        wait = timedelta(seconds=held["spec"].get("minReadySeconds", 0))
        available = sum(
            each.ready_since is not None and each.ready_since + wait <= self.world.now for each in pods
        )
        old = held.get("status", {}).get("conditions") or [{}]
        reason = "ReplicaSetUpdated" if is_new else old[0].get("reason", "")
        if is_new:
            self._began[held["metadata"]["name"]] = self.world.now
        deadline = timedelta(seconds=held["spec"].get("progressDeadlineSeconds", 600))
        if (
            reason == "ReplicaSetUpdated"
            and self._began[held["metadata"]["name"]] + deadline <= self.world.now
        ):
            reason = "ProgressDeadlineExceeded"
        if available >= held["spec"]["replicas"] > 0:
            reason = "NewReplicaSetAvailable"
        progressing = {"type": "Progressing", "status": "True", "reason": reason}
        counts = dict.fromkeys(("replicas", "updatedReplicas"), len(pods))
        generation = held["metadata"]["generation"]
        return counts | {
            "availableReplicas": available,
            "observedGeneration": generation,
            "conditions": [progressing],
        }

    @property
    def reason(self) -> str:
        return str(self.condition("Progressing")["reason"])

    @property
    def reasons(self) -> list[str]:
        """Of the condition Progressing, one after the other."""
        return [_condition(each, "Progressing")["reason"] for each in self.statuses]

    def condition(self, kind: str) -> Raw:
        return _condition(self.status, kind)

    def with_image(self, image: str) -> set[str]:
        return {name for name in self.world.nodes if self.world.image_on(name) == image}

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.turn()

    @property
    def fewest(self) -> int:
        """Nodes that served at any time."""
        return min(map(len, self.served))


def _annotations(held: Raw | None) -> Raw:
    return (held or {}).get("metadata", {}).get("annotations", {})


def _condition(status: Raw, kind: str) -> Raw:
    return next(each for each in status["conditions"] if each["type"] == kind)


__all__ = ["DETACHED", "NODES", "SCHEDULED", "Edge", "Image", "World"]
