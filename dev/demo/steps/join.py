"""Nodes that need an anycast IP: they join, open when it is bound, and one of them leaves."""

from __future__ import annotations

from collections.abc import Sequence

from dev.demo.fleet import Fleet
from dev.demo.fleet_promises import no_pod_too_early, nothing_left, one_address_each, opened_when_bound
from dev.demo.promises import Judge, Promise
from dev.demo.stage import ROOT
from dev.demo.step import Step
from dev.demo.world import World

NAMESPACE, SERVERS = "web", 8
NODES, LEAVER = 4, "cloud-1"


def play(world: World) -> Judge:
    world.kubectl("apply", "-f", str(ROOT / "dev" / "demo" / "web.yaml"))
    world.kubectl("apply", "-f", str(ROOT / "dev" / "demo" / "nodes.yaml"))
    world.until(lambda _: all(promise.kept for promise in _of_joining(world.fleet)), 60)
    world.kubectl("drain", LEAVER, "--timeout=30s")
    world.kubectl("delete", "node", LEAVER)
    world.until(lambda _: nothing_left(world.fleet, LEAVER).kept, 60)
    return lambda _: [*_of_joining(world.fleet), nothing_left(world.fleet, LEAVER)]


def _of_joining(fleet: Fleet) -> Sequence[Promise]:
    return [opened_when_bound(fleet, NODES), no_pod_too_early(fleet, SERVERS), one_address_each(fleet)]


STEP = Step(
    title="Nodes join, and one leaves",
    story="Each node is tainted in its very creation; the leader orders an address, binds it, and opens the node."
    " Servers that wait for such nodes come only then. When a node has left, its address is given back.",
    play=play,
)
