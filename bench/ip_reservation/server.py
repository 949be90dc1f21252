"""The webhook server without an API server, against a bare Flask application under the same gunicorn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench import processes
from bench.ip_reservation import load
from bench.ip_reservation.deployments import BENCH, PODS, await_scaled, deploy, scale
from bench.ip_reservation.load import Target
from bench.report import Figure, figure
from lab.session import Lab
from webhook.ip_reservation import PATH

CONCURRENCY = 64
PORT = 9443
BARE, RESERVING, SKIPPING = "bare Flask", "a deletion that is reserved", "a deletion that is skipped"


@dataclass(frozen=True)
class Measured:
    """*rate* in answers a second, *cost* in CPU seconds of the server for 1,000 of them."""

    rate: float
    cost: float


def figures(lab: Lab, *, rounds: int, requests: int) -> list[Figure]:
    """Both servers are up; asked one after the other in each round."""
    places = [(BENCH, "noop"), (BENCH, "alone")]
    deploy(lab.client, "alone", "bench.alone:app")
    for place in places:
        scale(lab.client, place, 1)
    for place in places:
        await_scaled(lab, place, 1)
    bodies = tuple(load.deletion(number) for number in range(1000))
    skipped = tuple(body.replace(b'"dryRun":false', b'"dryRun":true') for body in bodies)
    noop, alone = (_address(lab, name) for _, name in places)
    targets = {
        BARE: ("noop", Target(noop, PORT, "/", bodies)),
        RESERVING: ("alone", Target(alone, PORT, PATH, bodies)),
        SKIPPING: ("alone", Target(alone, PORT, PATH, skipped)),
    }
    measured: dict[str, list[Measured]] = {name: [] for name in targets}
    for _ in range(rounds):
        for name, (server, target) in targets.items():
            measured[name].append(_measure(lab, server, target, requests))
    return compared(measured)


def compared(measured: dict[str, list[Measured]]) -> list[Figure]:
    """Medians of the rounds, against those of the bare application."""
    rates = {name: median(each.rate for each in all_of) for name, all_of in measured.items()}
    costs = {name: median(each.cost for each in all_of) for name, all_of in measured.items()}
    return [
        figure(f"server alone: requests, {BARE}", rates[BARE], "1/s"),
        *(
            figure(f"server alone: requests, {name}", rates[name], "1/s", baseline=rates[BARE], at_least=0.8)
            for name in (RESERVING, SKIPPING)
        ),
        *(
            figure(f"server alone: CPU per 1,000 requests, {name}", costs[name], "s", baseline=costs[BARE])
            for name in (RESERVING, SKIPPING)
        ),
    ]


def _measure(lab: Lab, server: str, target: Target, requests: int) -> Measured:
    before = _seconds(lab, server)
    rate = load.rate(target, concurrency=CONCURRENCY, requests=requests)
    return Measured(rate, 1000 / (requests + CONCURRENCY) * (_seconds(lab, server) - before))


def _seconds(lab: Lab, server: str) -> float:
    found = processes.of_pods(lab.client, BENCH)
    return sum(usage.seconds for name, usage in found.items() if name.startswith(f"{server}-"))


def _address(lab: Lab, app: str) -> str:
    pods: Sequence[dict[str, dict[str, str]]] = lab.client.list(
        PODS, BENCH, label_selector=f"app={app}"
    ).items
    return pods[0]["status"]["podIP"]
