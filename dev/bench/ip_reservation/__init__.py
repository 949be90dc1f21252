"""What IP reservation costs deletions: storms and single ones with no webhook, with no-op ones, and with ours,
of pods that are reserved ahead and of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from calico.reservations import Reservations
from dev.bench.ip_reservation import server
from dev.bench.ip_reservation.allocator import POOL, ipam
from dev.bench.ip_reservation.figures import figures
from dev.bench.ip_reservation.rows import rows
from dev.bench.ip_reservation.runs import Run, Setting, Site, measured
from dev.bench.ip_reservation.storm import Load
from dev.bench.ip_reservation.variants import AHEAD, NO_OP, NONE, OURS, Stage, Variant
from dev.bench.report import Figure
from dev.lab import binaries, install
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from kube.resources import NAMESPACES

NAMESPACE = "storm"
NODES = 20
WARM_UP = 64
ROUNDS = 3
LOADS = (Load(200, 1), Load(500, 64, rate=50), Load(1000, 64), Load(2000, 64))
QUICK_LOADS = (Load(20, 1), Load(50, 64, rate=50), Load(200, 64))
REQUESTS, QUICK_REQUESTS = 4000, 500
# The chart's defaults, but that servers which are switched off in turn have no clients to drain.
VALUES = {"webhook": {"preStopSleep": "1s", "drainPeriod": "0s"}}


@dataclass(frozen=True)
class Plan:
    """Each of *loads* in each round, quiet and busy; *requests* are for the server alone."""

    loads: Sequence[Load] = LOADS
    rounds: int = ROUNDS
    requests: int = REQUESTS

    @property
    def settings(self) -> list[Setting]:
        both = [Setting(load, busy) for busy, load in product((False, True), self.loads)]
        return [*both, *self._storms(allocating=True)]

    def of(self, variant: Variant) -> list[Setting]:
        """A no-op without our conditions, and Calico's allocator, are of interest in one storm."""
        if variant.name == NO_OP:
            return self._storms(allocating=False)
        return [each for each in self.settings if not each.allocating or variant.name in (NONE, OURS, AHEAD)]

    def _storms(self, *, allocating: bool) -> list[Setting]:
        return [Setting(load, allocating=allocating) for load in self.loads if load.is_storm][:1]


def run(progress: Callable[[str], None], *, quick: bool = False) -> list[Figure]:
    """About three quarters of an hour; *quick* is for trying it out, its figures say little."""
    plan = Plan(QUICK_LOADS, 1, QUICK_REQUESTS) if quick else Plan()
    with running(calico=None, chart=False, nodes=1, kwok_nodes=NODES, progress=progress) as lab:
        progress("installing Calico's definitions and the chart")
        lab.kubectl("apply", "--server-side", "-f", str(binaries.calico_crds()))
        install.install_chart(lab, VALUES)
        ipam(lab, "pool", *POOL)
        found = rows(list(_runs(lab, plan, progress)))
        progress("asking the servers alone")
        return [
            *figures(found, plan.settings),
            *server.figures(lab, rounds=plan.rounds, requests=plan.requests),
        ]


def _runs(lab: Lab, plan: Plan, progress: Callable[[str], None]) -> Iterator[Run]:
    """Interleaved, so that whatever else this machine does falls on all variants alike."""
    labels = {"ip-reserve": "enabled"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    lab.client.create(NAMESPACES, namespace)
    stage, site = Stage(lab, NAMESPACE), Site(lab, NAMESPACE, NODES)
    for number in range(plan.rounds):
        for variant in in_turn(stage.variants, number):
            progress(f"round {number + 1}: {variant.name}")
            stage.enter(variant)
            if variant.name not in (
                OURS,
                AHEAD,
            ):  # there, the leader would reserve again what another client deletes
                _forget(lab)
            site.warm_up(WARM_UP)
            for setting in plan.of(variant):
                run = measured(site, variant, setting)
                progress(f"  {setting}: {run.storm.seconds:.1f} s, {run.storm.refused} refused")
                yield run


def in_turn(variants: Sequence[Variant], number: int) -> list[Variant]:
    """Another one comes first in each round."""
    first = number % len(variants)
    return [*variants[first:], *variants[:first]]


def _forget(lab: Lab) -> None:
    """Begin with no reservations, as the round before did."""
    reservations = Reservations(lab.client)
    for segment in reservations.list():
        reservations.delete(segment)
