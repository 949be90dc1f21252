"""More addresses than may be held."""

from __future__ import annotations

from dev.demo.promises import Judge, not_restarted, oldest_released_first
from dev.demo.stage import CHART, NAMESPACE, REPLICAS, programs
from dev.demo.step import Step
from dev.demo.table import Rules
from dev.demo.world import World

RULES = Rules(reserve_time=2400.0, max_count=3)
CHANGE = f"config.ipReserveMaxCount={RULES.max_count},config.ipReserveTime=40m"


def play(world: World) -> Judge:
    before = programs(world.lab.client)
    world.helm("upgrade", "drawbridge", str(CHART), "-n", "drawbridge", "--reuse-values", "--set", CHANGE)
    world.await_configuration(RULES)
    pods = world.await_running(NAMESPACE, REPLICAS)[:6]
    many = len(world.history.holds)
    for wave in (pods[:3], pods[3:]):
        world.delete(wave)
    world.until(lambda history: len(history.standing()) == RULES.max_count, 20)
    after = programs(world.lab.client)
    return lambda history: [
        not_restarted(before, after),
        # Not those of our pods alone: kwok may delete one more, which has come by the name of one of them.
        oldest_released_first(history.holds[many:], RULES.max_count),
    ]


STEP = Step(
    title="Release by count",
    story="The configuration is changed while all runs: hold for 40 minutes, but no more than 3 IPs. Then 6 pods go.",
    play=play,
)
