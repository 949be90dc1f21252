"""What anycast addresses cost: calls to the cloud, time against its rate limits, and the gate's share of a creation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from dev.bench import admission
from dev.bench.anycast_ip import fleet, idle, spare
from dev.bench.anycast_ip.figures import of_joining, of_leaving
from dev.bench.anycast_ip.gate import GATE
from dev.bench.anycast_ip.phases import measured, of_leader
from dev.bench.processes import MIB
from dev.bench.report import Figure, figure
from dev.lab.bootstrap import running
from dev.lab.cloud.config import Knobs
from dev.lab.cloud.values import Call
from dev.lab.session import Lab

SIZES, QUICK_SIZES = (1, 100, 1000), (1, 20, 100)
CREATIONS, QUICK_CREATIONS = 500, 100
ROUNDS, QUICK_ROUNDS = 3, 1
REQUESTS, QUICK_REQUESTS = 2000, 500
JOINS, QUICK_JOINS = 5, 1
KNOBS = Knobs(quota_total=2 * SIZES[-1], instances_run=False)
"""The cloud as it most plausibly is, in its times and in its rate limits, but for the room in its quota."""
VALUES = {
    "ipReservation": {"enabled": False},
    "replicaCount": 1,
    "controllers": {"replicaCount": 2},
    # Of a policy, which taints nodes by default, the API server counts no calls.
    "admission": {"mutations": "webhook"},
}


def run(progress: Callable[[str], None], *, quick: bool = False) -> list[Figure]:
    """About eight minutes; *quick* is for trying it out, its figures say little."""
    with running(
        values=VALUES, calico=None, nodes=1, kwok_nodes=0, cloud=msgspec.to_builtins(KNOBS), progress=progress
    ) as lab:
        return list(_figures(lab, progress, quick=quick))


def _figures(lab: Lab, progress: Callable[[str], None], *, quick: bool) -> Iterator[Figure]:
    progress("creating nodes in dry runs, and asking the server alone")
    yield from admission.figures(
        lab,
        GATE,
        size=QUICK_CREATIONS if quick else CREATIONS,
        rounds=QUICK_ROUNDS if quick else ROUNDS,
        requests=QUICK_REQUESTS if quick else REQUESTS,
    )
    yield figure("no nodes: memory of the leader", of_leader(lab).bytes / MIB, "MiB")
    idle_calls: dict[int, Sequence[Sequence[Call]]] = {}
    for size in QUICK_SIZES if quick else SIZES:
        progress(f"{size:,} joining")
        joined, cost = measured(lab, partial(fleet.join, lab, size))
        yield from of_joining(joined, cost, KNOBS)
        if size > 1:
            progress(f"{size:,} idle")
            idle_calls[size] = idle.calls_by_sweep(lab)
        progress(f"{size:,} leaving")
        seconds, cost = measured(lab, partial(fleet.leave, lab, joined.names))
        yield from of_leaving(size, seconds, fleet.left_behind(lab), cost, KNOBS)
    yield from idle.figures(idle_calls)
    progress("joining with a spare address and without")
    yield from spare.figures(spare.joins(lab, QUICK_JOINS if quick else JOINS))
