"""What the runs say, round by round, by setting, variant and measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import mean, median

from dev.bench.arithmetic import total
from dev.bench.cluster import CALLS, DURATION, REQUESTS, Counted
from dev.bench.ip_reservation.runs import CLUSTER, SETTLE, Run
from dev.bench.ip_reservation.variants import AHEAD, NONE, OURS
from dev.bench.processes import MIB

WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION")

WALL = "time until all are gone, s"
P50, P99 = "request p50, ms", "request p99, ms"
CALL = "webhook call mean, ms"
CALLED = "webhook calls per pod"
CPU = "CPU of the whole cluster, s per 1,000 pods"
CPU_LATER = f"CPU of the whole cluster in the {SETTLE:g} s after, s per 1,000 pods"
CPU_API, CPU_ETCD = "CPU of kube-apiserver", "CPU of etcd"
CPU_SERVERS, CPU_CONTROLLERS = "CPU of the webhook servers", "CPU of the controllers"
WRITTEN = "IPReservation writes per pod"
PEAK, REST = "most IPReservation objects at once", "IPReservation objects in the end"
REFUSED, LOST = "requests refused", "pods whose IP was lost"
ASSIGNED, ASSIGNED_BEFORE = "Calico's allocator, ms", "Calico's allocator before, ms"
SERVER_MEMORY, LEADER_MEMORY = "memory of a webhook server, MiB", "memory of the leader, MiB"


Rows = Mapping[tuple[str, str, str], list[float]]
"""The values of the rounds, in turn, by setting, variant and measure."""


def quantile_of(values: Sequence[float], share: float) -> float:
    """The smallest of *values* that *share* of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else math.nan


def _cpu(*roles: str) -> Callable[[Run], float]:
    """Of all programs whose role begins so, in seconds for 1,000 pods."""
    return lambda run: _per_thousand(run, run.counted, roles)


def _cpu_later(run: Run) -> float:
    return _per_thousand(run, run.later, (CLUSTER,)) if run.setting.load.is_storm else math.nan


def _per_thousand(run: Run, counted: Counted, roles: tuple[str, ...]) -> float:
    seconds = sum(used.seconds for role, used in counted.used.items() if role.startswith(roles))
    return 1000 / run.setting.load.size * seconds


def _memory(role: str) -> Callable[[Run], float]:
    def of_run(run: Run) -> float:
        found = [used.bytes / MIB for each, used in run.counted.used.items() if each.startswith(role)]
        return mean(found) if found else math.nan

    return of_run


def _waited(share: float) -> Callable[[Run], float]:
    return lambda run: 1000 * quantile_of(run.storm.waited, share)


def _call(run: Run) -> float:
    """As the API server saw it."""
    taken, count = (
        total(run.counted.grown, f"{DURATION}_{each}", name=run.variant.webhook) for each in ("sum", "count")
    )
    return 1000 * taken / count if count else math.nan


def _called(run: Run) -> float:
    return total(run.counted.grown, CALLS, name=run.variant.webhook) / run.setting.load.size


def _written(run: Run) -> float:
    writes = sum(
        total(each.grown, REQUESTS, resource="ipreservations", verb=verb)
        for each in (run.counted, run.later)
        for verb in WRITES
    )
    return writes / run.setting.load.size


def _assigned(values: Sequence[float]) -> float:
    return 1000 * median(values) if values else math.nan


OF_ALL: dict[str, Callable[[Run], float]] = {
    WALL: lambda run: run.storm.seconds,
    P50: _waited(0.5),
    P99: _waited(0.99),
    CPU: _cpu(CLUSTER),
    CPU_LATER: _cpu_later,
    CPU_API: _cpu("kube-apiserver"),
    CPU_ETCD: _cpu("etcd"),
    REFUSED: lambda run: run.storm.refused,
    ASSIGNED: lambda run: _assigned(run.assigned.during),
    ASSIGNED_BEFORE: lambda run: _assigned(run.assigned.before),
}
OF_WEBHOOKS: dict[str, Callable[[Run], float]] = {
    CALL: _call,
    CALLED: _called,
    CPU_SERVERS: _cpu("webhook server", "no-op"),
    SERVER_MEMORY: _memory("webhook server"),
}
OF_OURS: dict[str, Callable[[Run], float]] = {
    CPU_CONTROLLERS: _cpu("leader", "standby"),
    WRITTEN: _written,
    PEAK: lambda run: run.judged.peak,
    REST: lambda run: run.judged.rest,
    LOST: lambda run: len(run.judged.lost),
    LEADER_MEMORY: _memory("leader"),
}


def rows(runs: Sequence[Run]) -> Rows:
    """Without those of which a variant has no values."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for run in runs:
        for measure, value in _measures(run.variant.name).items():
            found.setdefault((str(run.setting), run.variant.name, measure), []).append(float(value(run)))
    return {key: values for key, values in found.items() if not all(map(math.isnan, values))}


def _measures(variant: str) -> dict[str, Callable[[Run], float]]:
    return {
        **OF_ALL,
        **(OF_WEBHOOKS if variant != NONE else {}),
        **(OF_OURS if variant in (OURS, AHEAD) else {}),
    }
