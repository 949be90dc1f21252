"""What is promised of a storm, held against what was measured: ratios of the same round, their median judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from dev.bench.ip_reservation.rows import (
    ASSIGNED,
    ASSIGNED_BEFORE,
    CALL,
    CALLED,
    CPU,
    CPU_API,
    CPU_CONTROLLERS,
    CPU_ETCD,
    CPU_LATER,
    CPU_SERVERS,
    LEADER_MEMORY,
    LOST,
    P50,
    P99,
    PEAK,
    REFUSED,
    REST,
    SERVER_MEMORY,
    WALL,
    WRITTEN,
    Rows,
)
from dev.bench.ip_reservation.runs import Setting
from dev.bench.ip_reservation.variants import AHEAD, NO_OP, NO_OP_CONDITIONS, NONE, OURS
from dev.bench.report import Figure, figure, of_rounds

WALL_TO_NONE = {False: 1.3, True: 1.5}
"""Quiet, and busy."""
WALL_TO_NO_OP = 1.15
CALL_TO_NO_OP = 2.0
CPU_TO_NONE = 1.38
"""18 s where it is 13 s without a webhook."""
ONE_AT_A_TIME = {P50: 1.8}
STEADY = {P50: 2.0, P99: 2.5}
OF_AHEAD = {WALL: 1.15, CPU: 1.2, P50: 1.1, P99: 1.3}
"""Against none."""
CALLS_OF_AHEAD = 0.02
OBJECTS = 200
ALLOCATING = 1.3


def figures(found: Rows, settings: Sequence[Setting]) -> list[Figure]:
    """Setting by setting, medians over the rounds; at last what is counted over all of them together."""
    each = [
        each for setting in settings for each in (*_of_setting(found, setting), *_of_ahead(found, setting))
    ]
    return [*each, *_counts(found, settings)]


def _of_setting(found: Rows, setting: Setting) -> Iterator[Figure]:
    if setting.allocating:
        yield from _of_allocator(found, setting)
    elif setting.load.is_storm:
        yield from _of_storm(found, setting)
    else:
        limits = STEADY if setting.load.rate else ONE_AT_A_TIME
        for measure in (P50, P99):
            yield _against(found, setting, measure, NO_OP_CONDITIONS, limits.get(measure))
            yield _against(found, setting, measure, NONE)
        yield _against(found, setting, CALL, NO_OP_CONDITIONS)


def _of_storm(found: Rows, setting: Setting) -> Iterator[Figure]:
    yield _against(found, setting, WALL, NONE, WALL_TO_NONE[setting.busy])
    yield _against(found, setting, WALL, NO_OP_CONDITIONS, WALL_TO_NO_OP)
    if (str(setting), NO_OP, WALL) in found:
        yield _against(found, setting, WALL, NO_OP)
    yield _against(found, setting, WALL, NONE, ours=NO_OP_CONDITIONS)
    for measure in (P50, P99):
        yield _against(found, setting, measure, NO_OP_CONDITIONS)
    yield _against(found, setting, CALL, NO_OP_CONDITIONS, CALL_TO_NO_OP)
    yield _cpu(found, setting)
    yield _against(found, setting, CPU, NONE)
    for measure in (CPU, CPU_API, CPU_ETCD, CPU_SERVERS):
        yield _against(found, setting, measure, NO_OP_CONDITIONS)
    for measure in (CPU_CONTROLLERS, SERVER_MEMORY, LEADER_MEMORY, WRITTEN, REST):
        yield _value(found, setting, measure)
    yield _value(found, setting, CALLED, at_most=1.1)
    yield _value(found, setting, PEAK, at_most=OBJECTS)


def _of_ahead(found: Rows, setting: Setting) -> Iterator[Figure]:
    """What a deletion costs without us, it costs with us."""
    if setting.allocating:
        yield from _of_allocator(found, setting, AHEAD)
    elif setting.load.is_storm:
        yield _against(found, setting, WALL, NONE, OF_AHEAD[WALL], ours=AHEAD)
        yield _cpu(found, setting, AHEAD, OF_AHEAD[CPU])
        yield _value(found, setting, CPU_CONTROLLERS, ours=AHEAD)
    else:
        for measure in (P50, P99):
            limit = OF_AHEAD[measure] if setting.load.rate else None
            yield _against(found, setting, measure, NONE, limit, ours=AHEAD)
    yield _value(found, setting, CALLED, at_most=CALLS_OF_AHEAD, ours=AHEAD)


def _cpu(found: Rows, setting: Setting, variant: str = OURS, at_most: float = CPU_TO_NONE) -> Figure:
    """With what ours leaves for later, less what the same cluster uses at rest."""
    ours, later = found[str(setting), variant, CPU], found[str(setting), variant, CPU_LATER]
    none, rest = found[str(setting), NONE, CPU], found[str(setting), NONE, CPU_LATER]
    what, _, unit = CPU.partition(", ")
    name = f"{setting}: {what} with what it does later, {variant} against {NONE}"
    values = [during + after - idle for during, after, idle in zip(ours, later, rest, strict=True)]
    return of_rounds(name, unit, values, none, at_most=at_most)


def _of_allocator(found: Rows, setting: Setting, variant: str = OURS) -> Iterator[Figure]:
    """The storm alone, without a webhook, takes cores from the allocator: both ratios are shown."""
    during = found[str(setting), variant, ASSIGNED]
    without, before = found[str(setting), NONE, ASSIGNED], found[str(setting), variant, ASSIGNED_BEFORE]
    name = f"{setting}: Calico's allocator for one IP, {variant}"
    yield of_rounds(f"{name}, storm against rest", "ms", during, before, at_most=ALLOCATING)
    yield of_rounds(f"{name}, storm against one without webhook", "ms", during, without)


def _counts(found: Rows, settings: Sequence[Setting]) -> Iterator[Figure]:
    both = [(each, variant) for each in settings for variant in (OURS, AHEAD)]
    pods = sum(each.load.size * len(found[str(each), variant, WALL]) for each, variant in both)
    for measure in (REFUSED, LOST):
        count = sum(sum(found[str(each), variant, measure]) for each, variant in both)
        yield figure(f"all {pods:,} deletions: {measure}", count, "", at_most=0)


def _against(
    found: Rows, setting: Setting, measure: str, baseline: str, at_most: float | None = None, ours: str = OURS
) -> Figure:
    what, _, unit = measure.partition(", ")
    name = f"{setting}: {what}, {ours} against {baseline}"
    values = found[str(setting), ours, measure]
    return of_rounds(name, unit, values, found[str(setting), baseline, measure], at_most=at_most)


def _value(
    found: Rows, setting: Setting, measure: str, at_most: float | None = None, ours: str = OURS
) -> Figure:
    what, _, unit = measure.partition(", ")
    value = median(found[str(setting), ours, measure])
    return figure(f"{setting}: {what}, {ours}", value, unit, at_most=at_most)
