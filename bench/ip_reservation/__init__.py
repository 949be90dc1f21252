"""What IP reservation costs a drain: storms of deletions with no webhook, a no-op one, and ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.ip_reservation import server, storm
from bench.ip_reservation.deployments import NAMESPACES
from bench.ip_reservation.figures import figures
from bench.ip_reservation.runs import Run, measured
from bench.ip_reservation.variants import Stage
from bench.report import Figure
from calico.reservations import Reservations
from lab.begin import running
from lab.session import Lab

NAMESPACE = "storm"
NODES = 20
WARM_UP = 64
ROUNDS = {1000: 3, 2000: 2}
QUICK_ROUNDS = {200: 1}
REQUESTS, QUICK_REQUESTS = 4000, 500
# Nothing is released meanwhile, and servers that are switched off in turn have no clients to drain.
VALUES = {
    "replicaCount": 2,
    "controllers": {"replicaCount": 2},
    "config": {"ipReserveTime": "1h", "ipReserveMaxCount": 20_000},
    "webhook": {"preStopSleepSeconds": 1, "drainPeriod": "0s"},
}


def run(progress: Callable[[str], None], *, quick: bool = False) -> list[Figure]:
    """About six minutes; *quick* is for trying it out, its figures say little."""
    rounds, requests = (QUICK_ROUNDS, QUICK_REQUESTS) if quick else (ROUNDS, REQUESTS)
    with running(values=VALUES, nodes=1, kwok_nodes=NODES, progress=progress) as lab:
        runs = list(_storms(lab, rounds, progress))
        progress("asking the servers alone")
        return figures(runs) + server.figures(lab, rounds=max(rounds.values()), requests=requests)


def _storms(lab: Lab, rounds: dict[int, int], progress: Callable[[str], None]) -> Iterator[Run]:
    """Interleaved, so that whatever else this machine does falls on all variants alike."""
    labels = {"ip-reserve": "enabled"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    lab.client.create(NAMESPACES, namespace)
    stage = Stage(lab, NAMESPACE)
    for number in range(max(rounds.values())):
        for variant in stage.variants:
            progress(f"round {number + 1}: {variant.name}")
            stage.enter(variant)
            _forget(lab)
            storm.delete(lab.client, NAMESPACE, storm.create(lab, NAMESPACE, WARM_UP, NODES))
            for size in (size for size, times in rounds.items() if number < times):
                run = measured(lab, variant, NAMESPACE, size, NODES)
                progress(f"  {size:,} deletions in {run.storm.seconds:.1f} s, {run.storm.refused} refused")
                yield run


def _forget(lab: Lab) -> None:
    """Begin with no reservations, as the round before did."""
    reservations = Reservations(lab.client)
    for segment in reservations.list():
        reservations.delete(segment)
