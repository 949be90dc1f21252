"""A cluster in which nothing happens: what the controllers hold in memory, and what they do all the same."""

from __future__ import annotations

import time
from collections.abc import Mapping

from dev.bench.elasticity.phases import counted
from dev.bench.processes import MIB, Usage
from dev.bench.report import Figure, figure
from dev.lab.session import Lab

LEADER, STANDBY = "leader", "standby"
MOST_CPU = 1.0
"""Percent of a core."""
MOST_MEMORY = 10.0
"""KiB for each pod."""


def measured(lab: Lab, seconds: float) -> tuple[float, Mapping[str, Usage]]:
    """What was used in that time, by the clock."""
    before, begin = counted(lab), time.monotonic()
    time.sleep(seconds)  # the length of the measurement
    after, end = counted(lab), time.monotonic()
    return end - begin, after.since(before).used


def figures(
    pods: int, empty: Mapping[str, Usage], at_rest: tuple[float, Mapping[str, Usage]]
) -> list[Figure]:
    """*empty* is how the controllers were without any pods."""
    seconds, now = at_rest
    name = f"{pods:,} pods at rest"
    more = (now[LEADER].bytes - empty[LEADER].bytes) / 1024 / pods
    return [
        *(
            figure(
                f"{name}: CPU of the {role}, of a core",
                100 * now[role].seconds / seconds,
                "%",
                at_most=MOST_CPU,
            )
            for role in (LEADER, STANDBY)
        ),
        *(
            figure(
                f"{name}: memory of the {role}",
                now[role].bytes / MIB,
                "MiB",
                baseline=empty[role].bytes / MIB,
            )
            for role in (LEADER, STANDBY)
        ),
        figure(f"{name}: memory of the leader, more for each pod", more, "KiB", at_most=MOST_MEMORY),
        figure(f"{name}: peak memory of the leader", now[LEADER].peak / MIB, "MiB"),
    ]
