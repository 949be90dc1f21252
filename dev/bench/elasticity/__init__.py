"""What elasticity costs: pods placed by us against pods bound by the scheduler alone and against pods with a gate
that decides nothing, and a full cluster at rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dev.bench import admission
from dev.bench.elasticity import figures, floor, rest
from dev.bench.elasticity.crowd import OURS, SIZE, Crowd, leave
from dev.bench.elasticity.gate import GATE
from dev.bench.elasticity.phases import counted, measured
from dev.bench.report import Figure
from dev.lab.bootstrap import running
from dev.lab.session import Lab

NODES = 45
"""Of the lab's 110 pods each: there is room for all local pods."""
VALUES = {
    "ipReservation": {"enabled": False},
    "elasticity": {"enabled": True},
    "cloud": {"subnets": [{"id": "subnet-bench0001", "zone": "ap-guangzhou-3"}]},
    "replicaCount": 1,
    "controllers": {"replicaCount": 2},
}


@dataclass(frozen=True)
class Extent:
    """*crowds* Deployments are placed, and as many are not; *pods* there are at rest, for *seconds*."""

    crowds: int = 20
    pods: int = 5000
    seconds: float = 60.0
    creations: int = 500
    rounds: int = 3
    requests: int = 2000


QUICK = Extent(crowds=2, pods=500, seconds=10.0, creations=100, rounds=1, requests=500)


def run(progress: Callable[[str], None], *, quick: bool = False) -> list[Figure]:
    """About five minutes; *quick* is for trying it out, its figures say little."""
    with running(values=VALUES, calico=None, nodes=1, kwok_nodes=NODES, progress=progress) as lab:
        return list(_figures(lab, QUICK if quick else Extent(), progress))


def _figures(lab: Lab, extent: Extent, progress: Callable[[str], None]) -> Iterator[Figure]:
    progress("creating pods in dry runs, and asking the server alone")
    yield from admission.figures(
        lab, GATE, size=extent.creations, rounds=extent.rounds, requests=extent.requests
    )
    empty = counted(lab).used
    size = extent.crowds * SIZE
    progress(f"{size:,} pods without a number of local replicas")
    plain = measured(lab, Crowd("plain", extent.crowds))
    progress(f"{size:,} pods with a gate that decides nothing")
    with floor.in_force(lab):
        gated = measured(lab, Crowd("gated", extent.crowds, floor.MARKED))
    leave(lab, gated.crowd)
    progress(f"{size:,} pods with one")
    placed = measured(lab, Crowd("placed", extent.crowds, OURS))
    yield from figures.of_placing(plain, placed)
    yield from figures.against_floor(plain, gated, placed)
    progress(f"{extent.pods:,} pods at rest")
    measured(lab, Crowd("more", (extent.pods - 2 * size) // SIZE))
    yield from rest.figures(extent.pods, empty, rest.measured(lab, extent.seconds))
