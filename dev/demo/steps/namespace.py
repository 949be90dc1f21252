"""A namespace that is deleted with all pods in it."""

from __future__ import annotations

from dev.demo.promises import Judge, never_reserved, reserved_before_gone
from dev.demo.stage import ROOT
from dev.demo.step import Step
from dev.demo.world import World

NAMESPACE, BROKERS = "kafka", 3


def play(world: World) -> Judge:
    world.kubectl("apply", "-f", str(ROOT / "dev" / "demo" / "kafka.yaml"))
    *brokers, opted_out = world.await_running(NAMESPACE, BROKERS)
    world.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    world.await_departure(brokers)
    world.until(lambda history: never_reserved(history, opted_out).kept, 20)
    return lambda history: [reserved_before_gone(history, brokers), never_reserved(history, opted_out)]


STEP = Step(
    title="Delete a namespace",
    story="Brokers go with their namespace, selected by their label brokerId; one of them has opted out by annotation.",
    play=play,
)
