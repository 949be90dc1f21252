"""What nodes cost whose addresses are bound and stay so: the reads of each sweep over them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence

from cloud.apis import DESCRIBE_QUOTA
from cloud.client import PAGE
from dev.bench.anycast_ip.phases import is_read
from dev.bench.report import Figure, figure
from dev.lab import install
from dev.lab.cloud.values import Call
from dev.lab.session import Lab
from settings import AnycastIPSettings

SWEEPS = 4
PATIENCE = 120.0
SETTINGS = {"anycastIP": {"resyncPeriod": "2s"}}
"""So that not much idleness is enough; what a sweep costs does not depend on when the next one is."""


def calls_by_sweep(lab: Lab) -> list[list[Call]]:
    """Of some sweeps in a row, while nothing else happens."""
    install.edit_settings(lab, SETTINGS)
    known = len(lab.cloud.calls())

    def seen() -> list[list[Call]]:
        time.sleep(0.5)  # telling all calls is work, too
        found = sweeps(lab.cloud.calls()[known:])[1:]  # the first one is cut off
        return found if len(found) >= SWEEPS else []

    found = lab.wait(seen, PATIENCE, f"{SWEEPS} sweeps over all addresses")
    install.upgrade(lab, {})
    return found


def sweeps(calls: Iterable[Call]) -> list[list[Call]]:
    """Each ends with a look at the quotas; what comes after the last one is left out."""
    found: list[list[Call]] = [[]]
    for call in calls:
        found[-1].append(call)
        if call.action == DESCRIBE_QUOTA.action:
            found.append([])
    return found[:-1]


def figures(found: Mapping[int, Sequence[Sequence[Call]]]) -> list[Figure]:
    """By the number of nodes; the fewest are what the others are compared with."""
    return [
        each for size in found for each in _of_size(size, found[size], beyond(min(found), found[min(found)]))
    ]


def _of_size(size: int, found: Sequence[Sequence[Call]], fewest: int) -> list[Figure]:
    name, most = f"{size:,} idle", max(map(len, found))
    an_hour = 3600 / AnycastIPSettings().resync_period
    more = beyond(size, found)
    return [
        figure(
            f"{name}: cloud writes", sum(not is_read(call) for each in found for call in each), "", at_most=0
        ),
        figure(f"{name}: cloud reads per hour", most * an_hour, ""),
        figure(f"{name}: reads per sweep beyond its pages", more, "", baseline=fewest, at_most=1.0),
    ]


def beyond(size: int, found: Sequence[Sequence[Call]]) -> int:
    """How many calls a sweep makes at most, beside one for each page of addresses."""
    return max(map(len, found)) - math.ceil(size / PAGE)
