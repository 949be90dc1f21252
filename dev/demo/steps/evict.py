"""A pod that is evicted through the Eviction API."""

from __future__ import annotations

import json

from dev.demo.promises import Judge, reserved_before_gone
from dev.demo.stage import NAMESPACE, REPLICAS
from dev.demo.step import Step
from dev.demo.world import World
from kube.client import Resource


def play(world: World) -> Judge:
    pod = world.await_running(NAMESPACE, REPLICAS)[2]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.metadata.name}}
    path = Resource("", "v1", "pods").path(NAMESPACE, pod.metadata.name, "eviction")
    world.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    world.await_departure([pod])
    return lambda history: [reserved_before_gone(history, [pod])]


STEP = Step(
    title="Evict a pod",
    story="An eviction, as drains, deschedulers and autoscalers ask for it, is held at the same gate.",
    play=play,
)
