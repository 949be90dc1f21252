"""What a spare address of the pool saves: one node after the other joins, with and without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from dev.bench.anycast_ip import fleet
from dev.bench.report import Figure, figure
from dev.lab import install
from dev.lab.session import Lab

VALUES = {"anycastIP": {"pool": {"minIdle": 1}}}
SAVED = 0.8
"""Of the time without a spare; an order is the rest of it."""


@dataclass(frozen=True)
class Joins:
    """Seconds until nodes were open, and how many were seen open without a bound address."""

    without: Sequence[float]
    with_spare: Sequence[float]
    early: int


def joins(lab: Lab, rounds: int) -> Joins:
    """In turns, so that both meet the same machine; in the end the pool is off and empty."""
    ordinary, quick = [], []
    for _ in range(rounds):
        ordinary.append(joined := fleet.join(lab, 1))
        fleet.leave(lab, joined.names)
        install.upgrade(lab, VALUES)
        lab.wait(lambda: has_spare(lab), fleet.PATIENCE, "a spare address")
        quick.append(joined := fleet.join(lab, 1))
        install.upgrade(lab, {})
        fleet.leave(lab, joined.names)
    early = sum(each.early for each in (*ordinary, *quick))
    return Joins([each.seconds for each in ordinary], [each.seconds for each in quick], early)


def has_spare(lab: Lab) -> bool:
    return [each["status"] for each in lab.cloud.state()["addresses"]] == ["UNBIND"]


def figures(found: Joins) -> list[Figure]:
    seconds, without = median(found.with_spare), median(found.without)
    return [
        figure("1 joining with a spare: seen open without a bound address", found.early, "", at_most=0),
        figure(
            "1 joining with a spare: time until it is open, against that without one",
            seconds,
            "s",
            baseline=without,
            at_most=SAVED,
        ),
    ]
