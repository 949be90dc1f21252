"""What a gate costs the creation of an object: calls, their time against a no-op's, and the server alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec

from dev.bench.arithmetic import Samples, growth, total
from dev.bench.cluster import CALLS, DURATION, counters
from dev.bench.deployments import BENCH, PATIENCE, SERVERS, await_scaled, deploy, scale
from dev.bench.ip_reservation.load import review
from dev.bench.ip_reservation.server import BARE, Question, asked, compared
from dev.bench.ip_reservation.variants import noop_registration
from dev.bench.report import Figure, figure
from dev.lab.admission import WEBHOOK_CONFIGURATION
from dev.lab.install import NAMESPACE
from dev.lab.session import Lab
from kube.resources import MUTATING_WEBHOOKS

CONCURRENCY = 8
NOOP = (BENCH, "noop")
NO_MARKS: Mapping[str, str] = {}

Marks = Mapping[str, str]
"""Labels or annotations of a new object, by which it is of concern to the gate, or is not."""


@dataclass(frozen=True)
class Gate:
    """A webhook at *path*, called when *one* with *marks* is created at *objects*, which it then has *held*.

    *review* is what is asked about an object of a number and with marks, without what is the same for all.
    """

    path: str
    objects: str
    one: str
    held: str
    others: str
    marks: Marks
    review: Callable[[int, Marks], dict[str, Any]]
    is_held: Callable[[msgspec.Raw], bool]


@dataclass(frozen=True)
class Creations:
    """Of *size* objects, *held* came back so; by how much the API server's counters grew meanwhile."""

    size: int
    held: int
    grown: Samples


def figures(lab: Lab, gate: Gate, *, size: int, rounds: int, requests: int) -> list[Figure]:
    """Nothing of what is compared with runs, or is called, afterwards."""
    authority = deploy(lab.client, "noop", "dev.bench.noop:app")
    scale(lab.client, NOOP, 1)
    await_scaled(lab, NOOP, 1)
    ours, noop = _registered(lab, gate, authority)
    wanted, others = create(lab, gate, size, gate.marks), create(lab, gate, size, NO_MARKS)
    found = [
        *of_creations(gate, ours, noop, wanted, others),
        *compared(asked(lab, _questions(gate), rounds=rounds, requests=requests)),
    ]
    lab.client.delete(MUTATING_WEBHOOKS, "bench-noop")
    scale(lab.client, NOOP, 0)
    await_scaled(lab, NOOP, 0)
    return found


def _registered(lab: Lab, gate: Gate, authority: bytes) -> tuple[str, str]:
    """The names of our webhook and of the no-op's, which is called beside it from now on."""
    ours = of_path(lab.client.get(MUTATING_WEBHOOKS, WEBHOOK_CONFIGURATION), gate.path)
    noop = noop_registration(ours, authority, conditions=False)
    lab.client.create(MUTATING_WEBHOOKS, noop)
    names: tuple[str, str] = (ours["webhooks"][0]["name"], noop["webhooks"][0]["name"])
    lab.wait(lambda: _are_called(create(lab, gate, 1, gate.marks), names), PATIENCE, "both to be called")
    return names


def of_path(configuration: Mapping[str, Any], path: str) -> dict[str, Any]:
    """With the one webhook that calls *path*."""
    webhooks = [each for each in configuration["webhooks"] if each["clientConfig"]["service"]["path"] == path]
    return {**configuration, "webhooks": webhooks}


def _are_called(creations: Creations, names: tuple[str, str]) -> bool:
    return all(total(creations.grown, CALLS, name=name, code="200") for name in names)


def create(lab: Lab, gate: Gate, size: int, marks: Marks) -> Creations:
    """Create so many objects in a dry run, which admission takes no notice of."""
    before = _counted(lab)
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        held = sum(pool.map(lambda number: _is_born_held(lab, gate, number, marks), range(size)))
    return Creations(size, held, growth(before, _counted(lab)))


def _is_born_held(lab: Lab, gate: Gate, number: int, marks: Marks) -> bool:
    body = gate.review(number, marks)["object"]
    query = {"dryRun": "All"}
    return gate.is_held(lab.client.request("POST", gate.objects, body=body, query=query, type=msgspec.Raw))


def _counted(lab: Lab) -> dict[str, float]:
    return counters(lab.client, CALLS, f"{DURATION}_sum", f"{DURATION}_count")


def of_creations(gate: Gate, ours: str, noop: str, wanted: Creations, others: Creations) -> list[Figure]:
    """*wanted* objects have the marks, and *others* have not."""
    name, per = f"{gate.one}s created", f"per {gate.one}"
    calls = total(wanted.grown, CALLS, name=ours)
    return [
        figure(f"{name}: calls of the webhook {per}", calls / wanted.size, "", at_most=1.0),
        figure(f"{name}: {gate.held} at birth, {per}", wanted.held / wanted.size, "", at_least=1.0),
        figure(
            f"{name}: call of the webhook",
            _milliseconds(wanted, ours),
            "ms",
            baseline=_milliseconds(wanted, noop),
            at_most=1.5,
        ),
        figure(f"{gate.others}: calls of the webhook", total(others.grown, CALLS, name=ours), "", at_most=0),
    ]


def _milliseconds(creations: Creations, webhook: str) -> float:
    """The mean, as the API server saw it."""
    taken, count = (total(creations.grown, f"{DURATION}_{each}", name=webhook) for each in ("sum", "count"))
    return 1000 * taken / count


def _questions(gate: Gate) -> dict[str, Question]:
    server = (NAMESPACE, SERVERS)
    held, other = bodies(gate, gate.marks), bodies(gate, NO_MARKS)
    return {
        BARE: Question(NOOP, "/", held),
        f"a {gate.one} that is {gate.held}": Question(server, gate.path, held),
        f"a {gate.one} of no concern": Question(server, gate.path, other),
    }


def bodies(gate: Gate, marks: Marks) -> tuple[bytes, ...]:
    """A thousand AdmissionReviews as the API server sends them for a creation, each of another object."""
    return tuple(_body(gate, number, marks) for number in range(1000))


def _body(gate: Gate, number: int, marks: Marks) -> bytes:
    options = {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
    return review(number, operation="CREATE", options=options, **gate.review(number, marks))
