"""What IP reservation costs a drain: storms of deletions with no webhook, with no-op ones, and with ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bench.ip_reservation import server, storm
from bench.ip_reservation.deployments import NAMESPACES
from bench.ip_reservation.figures import figures
from bench.ip_reservation.runs import Load, Run, measured
from bench.ip_reservation.variants import OURS, Stage
from bench.report import Figure
from calico.reservations import Reservations
from lab.bootstrap import running
from lab.session import Lab

NAMESPACE = "storm"
NODES = 20
WARM_UP = 64
ROUNDS = {Load(1000, 64): 3, Load(2000, 64): 2, Load(1000, 128): 1, Load(1000, 256): 1, Load(1000, 512): 1}
QUICK_ROUNDS = {Load(200, 64): 1}
REQUESTS, QUICK_REQUESTS = 4000, 500
# The chart's defaults, but that servers which are switched off in turn have no clients to drain.
VALUES = {"webhook": {"preStopSleepSeconds": 1, "drainPeriod": "0s"}}


def run(
    progress: Callable[[str], None], *, quick: bool = False, concurrency: Sequence[int] = ()
) -> list[Figure]:
    """About twelve minutes; *quick* is for trying it out, its figures say little.

    With *concurrency*, one round of 1,000 deletions with so many at once each, and nothing else.
    """
    rounds, requests = (QUICK_ROUNDS, QUICK_REQUESTS) if quick else (ROUNDS, REQUESTS)
    rounds = {Load(min(load.size for load in rounds), each): 1 for each in concurrency} or rounds
    with running(values=VALUES, nodes=1, kwok_nodes=NODES, progress=progress) as lab:
        found = figures(list(_storms(lab, rounds, progress)))
        if concurrency:
            return found
        progress("asking the servers alone")
        return found + server.figures(lab, rounds=max(rounds.values()), requests=requests)


def _storms(lab: Lab, rounds: dict[Load, int], progress: Callable[[str], None]) -> Iterator[Run]:
    """Interleaved, so that whatever else this machine does falls on all variants alike."""
    labels = {"ip-reserve": "enabled"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    lab.client.create(NAMESPACES, namespace)
    stage = Stage(lab, NAMESPACE)
    for number in range(max(rounds.values())):
        for variant in stage.variants:
            progress(f"round {number + 1}: {variant.name}")
            stage.enter(variant)
            if variant.name != OURS:  # there, the leader would reserve again what another client deletes
                _forget(lab)
            storm.delete(lab, NAMESPACE, storm.create(lab, NAMESPACE, WARM_UP, NODES), concurrency=WARM_UP)
            for load in (load for load, times in rounds.items() if number < times):
                run = measured(lab, variant, NAMESPACE, load, NODES)
                progress(f"  {load} in {run.storm.seconds:.1f} s, {run.storm.refused} refused")
                yield run


def _forget(lab: Lab) -> None:
    """Begin with no reservations, as the round before did."""
    reservations = Reservations(lab.client)
    for segment in reservations.list():
        reservations.delete(segment)
