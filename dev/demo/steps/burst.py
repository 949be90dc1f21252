"""Replicas of which the first stays local and the others go to the super node; and the super node is left first."""

from __future__ import annotations

from dev.demo.burst_promises import never_more_local, placed_first, split, super_node_first
from dev.demo.promises import Judge
from dev.demo.stage import ROOT
from dev.demo.step import Step
from dev.demo.world import World

NAMESPACE, WORKLOAD = "shop", "deployment/nginx-deployment"
REPLICAS, LOCAL = 4, 1


def play(world: World) -> Judge:
    world.kubectl("apply", "-f", str(ROOT / "dev" / "demo" / "burst.yaml"))
    four = _await(world, REPLICAS)
    three = _scaled(world, REPLICAS - 1)
    one = _scaled(world, LOCAL)
    replicas = world.replicas
    return lambda _: [
        placed_first(replicas, REPLICAS),
        split(replicas, four, home=LOCAL, away=REPLICAS - LOCAL),
        never_more_local(replicas, LOCAL),
        super_node_first(replicas, four, three),
        super_node_first(replicas, three, one),
    ]


def _scaled(world: World, count: int) -> int:
    world.kubectl("-n", NAMESPACE, "scale", WORKLOAD, f"--replicas={count}")
    return _await(world, count)


def _await(world: World, count: int) -> int:
    """The revision at which so many stand, or, if they never do, at which they were given up; judging is for later."""
    world.until(lambda _: len(world.replicas.standing()) == count, 60)
    return world.replicas.revision


STEP = Step(
    title="Replicas go to the cloud, and leave it first",
    story="Of four replicas one is to stay local. Each is held by a gate until the leader has counted, and goes where"
    " it belongs in the same write. The deletion costs see to it that those on the super node are given up first.",
    play=play,
)
