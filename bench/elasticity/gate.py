"""What the gate costs the creation of a pod: calls, their time against a no-op's, and the server alone."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from bench.arithmetic import Samples, growth, samples, total
from bench.elasticity.crowd import AT_HOME, NAMESPACE, PODS
from bench.elasticity.reviews import bodies, pod
from bench.ip_reservation.deployments import BENCH, PATIENCE, SERVERS, await_scaled, deploy, scale
from bench.ip_reservation.server import BARE, Question, asked, compared
from bench.ip_reservation.variants import noop_registration
from bench.report import Figure, figure
from controllers.elasticity.pods import decode
from lab import install
from lab.admission import REGISTRATION, REGISTRATIONS
from lab.session import Lab
from webhook.elasticity import LOCAL_REPLICAS, PATH

CONCURRENCY = 8
CALLS = "apiserver_admission_webhook_request_total"
DURATION = "apiserver_admission_webhook_admission_duration_seconds"
WITH_NUMBER = {LOCAL_REPLICAS: str(AT_HOME)}
NOOP = (BENCH, "noop")
GATED, OTHER = "a pod that is gated", "a pod of no concern"


@dataclass(frozen=True)
class Creations:
    """Of *size* pods, *gated* came back so; by how much the API server's counters grew meanwhile."""

    size: int
    gated: int
    grown: Samples


def figures(lab: Lab, *, size: int, rounds: int, requests: int) -> list[Figure]:
    """Nothing of what is compared with runs, or is called, afterwards."""
    authority = deploy(lab.client, "noop", "bench.noop:app")
    scale(lab.client, NOOP, 1)
    await_scaled(lab, NOOP, 1)
    ours, noop = _registered(lab, authority)
    found = [
        *of_creations(ours, noop, create(lab, size, WITH_NUMBER), create(lab, size, {})),
        *compared(asked(lab, _questions(), rounds=rounds, requests=requests)),
    ]
    lab.client.delete(REGISTRATIONS, "bench-noop")
    scale(lab.client, NOOP, 0)
    await_scaled(lab, NOOP, 0)
    return found


def _registered(lab: Lab, authority: bytes) -> tuple[str, str]:
    """The names of our webhook and of the no-op's, which is called beside it from now on."""
    ours = lab.client.get(REGISTRATIONS, REGISTRATION)
    noop = noop_registration(ours, authority)
    lab.client.create(REGISTRATIONS, noop)
    names: tuple[str, str] = (ours["webhooks"][0]["name"], noop["webhooks"][0]["name"])
    lab.wait(lambda: _are_called(create(lab, 1, WITH_NUMBER), names), PATIENCE, "both to be called")
    return names


def _are_called(creations: Creations, names: tuple[str, str]) -> bool:
    return all(total(creations.grown, CALLS, name=name, code="200") for name in names)


def create(lab: Lab, size: int, annotations: Mapping[str, str]) -> Creations:
    """Create so many pods in a dry run, which admission takes no notice of."""
    before = _counted(lab)
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        gated = sum(pool.map(lambda number: _is_born_gated(lab, number, annotations), range(size)))
    return Creations(size, gated, growth(before, _counted(lab)))


def _is_born_gated(lab: Lab, number: int, annotations: Mapping[str, str]) -> bool:
    created = lab.client.request(
        "POST", PODS.path(NAMESPACE), body=pod(number, annotations), query={"dryRun": "All"}, type=msgspec.Raw
    )
    return decode(created).gated


def _counted(lab: Lab) -> dict[str, float]:
    scrape = lab.client.request("GET", "/metrics", type=bytes)
    return samples(scrape, CALLS, f"{DURATION}_sum", f"{DURATION}_count")


def of_creations(ours: str, noop: str, wanted: Creations, others: Creations) -> list[Figure]:
    """*wanted* pods have a number of replicas to keep at home, and *others* have none."""
    calls = total(wanted.grown, CALLS, name=ours)
    return [
        figure("pods created: calls of the webhook per pod", calls / wanted.size, "", at_most=1.0),
        figure("pods created: gated at birth, per pod", wanted.gated / wanted.size, "", at_least=1.0),
        figure(
            "pods created: call of the webhook",
            _milliseconds(wanted, ours),
            "ms",
            baseline=_milliseconds(wanted, noop),
            at_most=1.5,
        ),
        figure(
            f"pods without {LOCAL_REPLICAS}: calls of the webhook",
            total(others.grown, CALLS, name=ours),
            "",
            at_most=0,
        ),
    ]


def _milliseconds(creations: Creations, webhook: str) -> float:
    """The mean, as the API server saw it."""
    taken, count = (total(creations.grown, f"{DURATION}_{each}", name=webhook) for each in ("sum", "count"))
    return 1000 * taken / count


def _questions() -> dict[str, Question]:
    server = (install.NAMESPACE, SERVERS)
    gated, other = bodies(WITH_NUMBER), bodies({})
    return {
        BARE: Question(NOOP, "/", gated),
        GATED: Question(server, PATH, gated),
        OTHER: Question(server, PATH, other),
    }
