"""Edge nodes that get a new template: two at a time are off their load balancer, updated, and on again."""

from __future__ import annotations

from collections.abc import Sequence

from dev.demo.load_balancer import asking
from dev.demo.promises import Judge, Promise
from dev.demo.rollout import OK, Rollout
from dev.demo.rollout_promises import never_more_off, off_before_replaced, on_when_complete
from dev.demo.stage import ROOT
from dev.demo.step import Step
from dev.demo.world import World

NAMESPACE, NAME, PORT = "edge", "proxy", 10080
NODES = ("edge-0", "edge-1", "edge-2", "edge-3")
PODS_PER_NODE, AT_A_TIME = 2, 2
AT_LEAST = 1.0
"""Seconds for which health checks fail first: the grace, but for the delay until the load balancer, and we, see it."""
CHANGE = '[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "proxy:2"}]'


def play(world: World) -> Judge:
    rollout = world.rollout
    world.kubectl("apply", "-f", str(ROOT / "dev" / "demo" / "edge.yaml"))
    world.until(lambda _: _standing(rollout) == len(NODES) * PODS_PER_NODE, 60)
    with asking(world.lab, NAMESPACE, NAME, NODES, PORT, world.answers.put):
        world.until(lambda _: all(each.status == OK for each in rollout.courses.values()), 60)
        world.kubectl("-n", NAMESPACE, "patch", "ingressdaemonset", NAME, "--type=json", "-p", CHANGE)
        world.until(lambda _: all(promise.kept for promise in _judged(rollout)), 60)
    return lambda _: _judged(rollout)


def _standing(rollout: Rollout) -> int:
    return sum(len(course.standing()) for course in rollout.courses.values())


def _judged(rollout: Rollout) -> Sequence[Promise]:
    return [
        off_before_replaced(rollout, len(NODES) * PODS_PER_NODE, AT_LEAST),
        never_more_off(rollout, AT_A_TIME),
        on_when_complete(rollout, len(NODES), PODS_PER_NODE),
    ]


STEP = Step(
    title="Edge nodes are updated, off the load balancer",
    story="Each node has two pods of a proxy, and a health checker that a load balancer asks. For a new template, two"
    " nodes at a time fail their health checks first, while all pods serve; then the pods are replaced; then the"
    " checks pass again.",
    play=play,
)
