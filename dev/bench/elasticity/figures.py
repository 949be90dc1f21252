"""What placing costs, as figures, against the scheduler's own work on as many pods in the same run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from statistics import median, quantiles

from dev.bench.arithmetic import total
from dev.bench.cluster import DISPATCHED, REQUESTS
from dev.bench.elasticity.crowd import LOCAL, Course
from dev.bench.elasticity.phases import Phase
from dev.bench.processes import MIB
from dev.bench.report import Figure, figure
from dev.lab.install import RELEASE

WALL = WAIT = 2.0
"""Times what the scheduler alone takes."""
FLOOR = 1.2
"""Times what a gate takes that decides nothing."""
REQUESTS_PER_POD = 1.1

Moment = Callable[[Course], datetime | None]


def of_placing(plain: Phase, placed: Phase) -> Iterator[Figure]:
    """Of as many pods each; it is the scheduler that *plain* ones are bound by alone."""
    name = f"{placed.crowd.size:,} pods placed"
    yield figure(f"{name}: too many or too few local", astray(placed), "", at_most=0)
    slipped = sum(course.placed is None for course in placed.arrival.courses)
    yield figure(f"{name}: let through without a placement", slipped, "", at_most=0)
    yield from _walls(name, plain, placed)
    yield from _waits(name, plain, placed)
    yield from _requests(name, placed)
    yield from _costs(name, plain, placed)


def against_floor(plain: Phase, gated: Phase, placed: Phase) -> Iterator[Figure]:
    """*gated* pods are held and released by a program that decides nothing: no gate costs less."""
    name = f"{placed.crowd.size:,} pods placed"
    floor, ours = wall(gated, _placed), wall(placed, _placed)
    alone = wall(plain, _bound)
    what = "a gate that decides nothing"
    yield figure(
        f"{name}: until no gate is left, {what}, against the scheduler alone", floor, "s", baseline=alone
    )
    yield figure(f"{name}: until no gate is left, against {what}", ours, "s", baseline=floor, at_most=FLOOR)
    p50 = median(waits(placed, _placed)), median(waits(gated, _placed))
    yield figure(f"{name}: p50 wait for a place, against {what}", p50[0], "s", baseline=p50[1])


def astray(phase: Phase) -> int:
    """How many pods more or less than its number each Deployment has on local nodes, in total."""
    local = Counter(course.deployment for course in phase.arrival.courses if course.is_local)
    away = {course.deployment for course in phase.arrival.courses}
    return sum(abs(local[deployment] - LOCAL) for deployment in away)


def _walls(name: str, plain: Phase, placed: Phase) -> Iterator[Figure]:
    alone = wall(plain, _bound)
    yield figure(f"{name}: as many others bound by the scheduler alone", plain.crowd.size / alone, "1/s")
    yield figure(
        f"{name}: until no gate is left, against the scheduler alone",
        wall(placed, _placed),
        "s",
        baseline=alone,
        at_most=WALL,
    )
    yield figure(
        f"{name}: until all are bound, against the scheduler alone", wall(placed, _bound), "s", baseline=alone
    )


def _waits(name: str, plain: Phase, placed: Phase) -> Iterator[Figure]:
    ours, theirs = waits(placed, _placed), waits(plain, _bound)
    what = "wait for a place, against the scheduler alone"
    yield figure(f"{name}: p50 {what}", median(ours), "s", baseline=median(theirs), at_most=WAIT)
    yield figure(f"{name}: p99 {what}", _p99(ours), "s", baseline=_p99(theirs), at_most=WAIT)


def _requests(name: str, placed: Phase) -> Iterator[Figure]:
    size = placed.crowd.size
    ours = total(placed.grown, DISPATCHED, flow_schema=RELEASE)
    patches = total(placed.grown, REQUESTS, verb="PATCH", resource="pods", subresource="")
    yield figure(f"{name}: requests of ours per pod, of any kind", ours / size, "", at_most=REQUESTS_PER_POD)
    yield figure(f"{name}: patches per pod", patches / size, "")


def _costs(name: str, plain: Phase, placed: Phase) -> Iterator[Figure]:
    """CPU seconds per 1,000 pods."""
    for role in sorted(placed.used):
        before = plain.used[role].seconds * 1000 / plain.crowd.size
        now = placed.used[role].seconds * 1000 / placed.crowd.size
        yield figure(f"{name}: CPU of {role} per 1,000 pods", now, "s", baseline=before)
    yield figure(f"{name}: peak memory of the leader", placed.used["leader"].peak / MIB, "MiB")


def wall(phase: Phase, moment: Moment) -> float:
    """Seconds from the first request to the last pod's *moment*."""
    begin = phase.arrival.begin
    return max(_seconds(begin, at) for course in phase.arrival.courses if (at := moment(course)))


def waits(phase: Phase, moment: Moment) -> list[float]:
    """Seconds from each pod's creation to its *moment*."""
    return [_seconds(course.born, at) for course in phase.arrival.courses if (at := moment(course))]


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100, method="inclusive")[-1]


def _seconds(begin: datetime, end: datetime) -> float:
    return (end - begin) / timedelta(seconds=1)


def _placed(course: Course) -> datetime | None:
    return course.placed


def _bound(course: Course) -> datetime | None:
    return course.bound
