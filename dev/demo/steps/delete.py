"""Pods that a user deletes."""

from __future__ import annotations

from dev.demo.promises import Judge, reserved_before_gone
from dev.demo.stage import NAMESPACE, REPLICAS
from dev.demo.step import Step
from dev.demo.world import World


def play(world: World) -> Judge:
    pods = world.await_running(NAMESPACE, REPLICAS)[:2]
    world.delete(pods)
    return lambda history: [reserved_before_gone(history, pods)]


STEP = Step(
    title="Delete pods",
    story="The API server asks the webhook before it deletes; the webhook answers when the IPs are durably reserved.",
    play=play,
)
