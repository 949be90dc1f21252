"""A node that is drained."""

from __future__ import annotations

from collections import Counter

from dev.demo.promises import Judge, reserved_before_gone
from dev.demo.stage import NAMESPACE, REPLICAS
from dev.demo.step import Step
from dev.demo.world import World


def play(world: World) -> Judge:
    running = world.await_running(NAMESPACE, REPLICAS)
    [(node, _)] = Counter(pod.spec.node_name for pod in running).most_common(1)
    pods = [pod for pod in running if pod.spec.node_name == node]
    world.kubectl("drain", node, "--timeout=30s")
    world.await_departure(pods)
    world.kubectl("uncordon", node)
    return lambda history: [reserved_before_gone(history, pods)]


STEP = Step(
    title="Drain a node",
    story="All pods of a node are evicted at once, each as soon as its IP is reserved.",
    play=play,
)
