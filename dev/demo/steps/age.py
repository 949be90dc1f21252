"""Addresses that were held for as long as is configured."""

from __future__ import annotations

from dev.demo.promises import Judge, held_for_their_time
from dev.demo.step import Step
from dev.demo.world import World


def play(world: World) -> Judge:
    seconds = world.rules.reserve_time
    many = len(world.history.holds)
    world.until(lambda history: not history.standing(), seconds + 20)
    return lambda history: [held_for_their_time(history, history.holds[:many], seconds)]


STEP = Step(
    title="Release by age",
    story="No one does anything now: the leader of the controllers releases each IP ipReserveTime after its pod's end.",
    play=play,
)
