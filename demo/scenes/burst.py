"""Replicas of which the first stays at home and the others go to the super node; and the super node is left first."""

from __future__ import annotations

from demo.burst_promises import never_more_at_home, placed_first, split, super_node_first
from demo.promises import Judge
from demo.scene import Scene
from demo.stage import ROOT
from demo.world import World

NAMESPACE, WORKLOAD = "shop", "deployment/nginx-deployment"
REPLICAS, AT_HOME = 4, 1


def play(world: World) -> Judge:
    world.kubectl("apply", "-f", str(ROOT / "demo" / "burst.yaml"))
    four = _await(world, REPLICAS)
    three = _scaled(world, REPLICAS - 1)
    one = _scaled(world, AT_HOME)
    replicas = world.replicas
    return lambda _: [
        placed_first(replicas, REPLICAS),
        split(replicas, four, home=AT_HOME, away=REPLICAS - AT_HOME),
        never_more_at_home(replicas, AT_HOME),
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


SCENE = Scene(
    title="Replicas go to the cloud, and leave it first",
    story="Of four replicas one is to stay at home. Each is held by a gate until the leader has counted, and goes where"
    " it belongs in the same write. The deletion costs see to it that those on the super node are given up first.",
    play=play,
)
