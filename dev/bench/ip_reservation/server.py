"""The webhook server without an API server, against a bare Flask application under the same gunicorn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from api.ip_reservation import PATH
from dev.bench import processes
from dev.bench.deployments import BENCH, Place, await_scaled, deploy, scale
from dev.bench.ip_reservation import load
from dev.bench.ip_reservation.load import Target
from dev.bench.report import Figure, figure
from dev.lab.session import Lab
from kube.resources import PODS

CONCURRENCY = 64
PORT = 9443
LEAST = 0.8
"""Of the bare application's answers."""
BARE, RESERVING, SKIPPING = "bare Flask", "a deletion that is reserved", "a deletion that is skipped"


@dataclass(frozen=True)
class Question:
    """*bodies* are posted in turn to *path* of the one pod of the Deployment *place*."""

    place: Place
    path: str
    bodies: tuple[bytes, ...]


@dataclass(frozen=True)
class Measured:
    """*rate* in answers a second, *cost* in CPU seconds of the server for 1,000 of them."""

    rate: float
    cost: float


def figures(lab: Lab, *, rounds: int, requests: int) -> list[Figure]:
    """Both servers are up; asked one after the other in each round."""
    noop, alone = places = [(BENCH, "flask"), (BENCH, "alone")]
    deploy(lab.client, "flask", "dev.bench.noop:app")
    deploy(lab.client, "alone", "dev.bench.alone:app")
    for place in places:
        scale(lab.client, place, 1)
    for place in places:
        await_scaled(lab, place, 1)
    bodies = tuple(load.deletion(number) for number in range(1000))
    skipped = tuple(body.replace(b'"dryRun":false', b'"dryRun":true') for body in bodies)
    questions = {
        BARE: Question(noop, "/", bodies),
        RESERVING: Question(alone, PATH, bodies),
        SKIPPING: Question(alone, PATH, skipped),
    }
    return compared(asked(lab, questions, rounds=rounds, requests=requests), at_least=LEAST)


def asked(
    lab: Lab, questions: Mapping[str, Question], *, rounds: int, requests: int
) -> dict[str, list[Measured]]:
    """Each *questions* in each round, one after the other."""
    targets = {
        name: Target(_address(lab, question.place), PORT, question.path, question.bodies)
        for name, question in questions.items()
    }
    measured: dict[str, list[Measured]] = {name: [] for name in questions}
    for _ in range(rounds):
        for name, target in targets.items():
            measured[name].append(_measure(lab, questions[name].place, target, requests))
    return measured


def compared(measured: Mapping[str, Sequence[Measured]], *, at_least: float | None = None) -> list[Figure]:
    """Medians of the rounds, against those of the bare application, which comes first."""
    rates = {name: median(each.rate for each in all_of) for name, all_of in measured.items()}
    costs = {name: median(each.cost for each in all_of) for name, all_of in measured.items()}
    bare, *ours = measured
    return [
        figure(f"server alone: requests, {bare}", rates[bare], "1/s"),
        *(
            figure(
                f"server alone: requests, {name}", rates[name], "1/s", baseline=rates[bare], at_least=at_least
            )
            for name in ours
        ),
        *(
            figure(f"server alone: CPU per 1,000 requests, {name}", costs[name], "s", baseline=costs[bare])
            for name in ours
        ),
    ]


def _measure(lab: Lab, place: Place, target: Target, requests: int) -> Measured:
    before = _seconds(lab, place)
    rate = load.rate(target, concurrency=CONCURRENCY, requests=requests)
    return Measured(rate, 1000 / (requests + CONCURRENCY) * (_seconds(lab, place) - before))


def _seconds(lab: Lab, place: Place) -> float:
    namespace, server = place
    found = processes.of_pods(lab.client, namespace)
    return sum(usage.seconds for name, usage in found.items() if name.startswith(f"{server}-"))


def _address(lab: Lab, place: Place) -> str:
    """Of its one pod."""
    namespace, server = place
    pods: Sequence[dict[str, dict[str, str]]] = lab.client.list(PODS, namespace).items
    return next(pod["status"]["podIP"] for pod in pods if pod["metadata"]["name"].startswith(f"{server}-"))
