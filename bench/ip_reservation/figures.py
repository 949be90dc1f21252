"""What the runs say, as figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from bench.arithmetic import buckets, quantile, total
from bench.ip_reservation.runs import CALLS, DURATION, REQUESTS, Load, Run
from bench.ip_reservation.variants import NO_OP, NO_OP_CONDITIONS, NONE, OURS
from bench.processes import MIB
from bench.report import Figure, figure

WRITES = ("POST", "PUT", "PATCH", "DELETE")


def figures(runs: Sequence[Run]) -> list[Figure]:
    """Load by load; medians over the rounds, and counts over all of them together."""
    return [each for load in sorted({run.load for run in runs}) for each in _of_load(runs, load)]


def _of_load(runs: Sequence[Run], load: Load) -> Iterator[Figure]:
    none, noop, same, ours = (
        [run for run in runs if (run.variant.name, run.load) == (variant, load)]
        for variant in (NONE, NO_OP, NO_OP_CONDITIONS, OURS)
    )
    yield from _walls(f"{load}", none, noop, same, ours)
    yield figure(f"{load}: requests refused", _refused(ours), "", at_most=0)
    yield figure(f"{load}: requests refused, no-op", _refused(same), "")
    yield figure(f"{load}: IPReservation writes per pod", _writes(ours), "", at_most=0.1)
    yield figure(f"{load}: webhook calls per pod", _calls(ours), "", at_most=1.1)
    yield figure(f"{load}: webhook calls per pod, no-op", _calls(noop), "")
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        what = f"{load}: admission {name}"
        yield figure(what, 1000 * _latency(ours, share), "ms", baseline=1000 * _latency(same, share))
    yield from _costs(f"{load}", same, ours)


def _walls(
    name: str, none: Sequence[Run], noop: Sequence[Run], same: Sequence[Run], ours: Sequence[Run]
) -> Iterator[Figure]:
    """*same* is a no-op that is asked just what ours is asked: what it takes is the price of being asked."""
    walls = [median(run.storm.seconds for run in each) for each in (none, noop, same, ours)]
    yield figure(f"{name}: wall, no webhook", walls[0], "s")
    yield figure(f"{name}: wall, no-op against none", walls[1], "s", baseline=walls[0])
    yield figure(f"{name}: wall, no-op with our conditions against none", walls[2], "s", baseline=walls[0])
    yield figure(f"{name}: wall, ours against no-op", walls[3], "s", baseline=walls[1])
    yield figure(f"{name}: wall, ours against no-op with our conditions", walls[3], "s", baseline=walls[2])
    yield figure(f"{name}: wall, ours against none", walls[3], "s", baseline=walls[0], at_most=1.8)


def _costs(name: str, noop: Sequence[Run], ours: Sequence[Run]) -> Iterator[Figure]:
    """CPU seconds per 1,000 pods, and resident memory after the last round."""
    servers = "webhook server"
    yield figure(
        f"{name}: CPU of the servers per 1,000 pods", _cpu(ours, servers), "s", baseline=_cpu(noop, NO_OP)
    )
    for role in ("kube-apiserver", "etcd"):
        yield figure(
            f"{name}: CPU of {role} per 1,000 pods", _cpu(ours, role), "s", baseline=_cpu(noop, role)
        )
    for role in sorted(ours[-1].used):
        if role.startswith((servers, "leader", "standby")):
            yield figure(f"{name}: CPU of {role} per 1,000 pods", _cpu(ours, role), "s")
            yield figure(f"{name}: memory of {role}", ours[-1].used[role].bytes / MIB, "MiB")


def _cpu(runs: Sequence[Run], role: str) -> float:
    """Of all programs whose role begins so, the median of the rounds."""
    return median(
        1000 / run.load.size * sum(used.seconds for each, used in run.used.items() if each.startswith(role))
        for run in runs
    )


def _latency(runs: Iterable[Run], share: float) -> float:
    """In seconds, as the API server saw it, over all rounds."""
    found: Counter[float] = Counter()
    for run in runs:
        found.update(buckets(run.grown, DURATION, name=run.variant.webhook))
    return quantile(found, share)


def _writes(runs: Sequence[Run]) -> float:
    per_verb = (
        total(run.grown, REQUESTS, resource="ipreservations", verb=verb) for run in runs for verb in WRITES
    )
    return sum(per_verb) / _pods(runs)


def _calls(runs: Sequence[Run]) -> float:
    return sum(total(run.grown, CALLS, name=run.variant.webhook) for run in runs) / _pods(runs)


def _pods(runs: Sequence[Run]) -> int:
    return sum(run.load.size for run in runs)


def _refused(runs: Sequence[Run]) -> int:
    return sum(run.storm.refused for run in runs)
