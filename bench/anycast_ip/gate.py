"""What the gate costs the creation of a node: calls, their time against a no-op's, and the server alone."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from bench.arithmetic import Samples, growth, samples, total
from bench.ip_reservation.deployments import BENCH, PATIENCE, SERVERS, await_scaled, deploy, scale
from bench.ip_reservation.server import BARE, Question, asked, compared
from bench.ip_reservation.variants import noop_registration
from bench.report import Figure, figure
from kube.objects import Node
from lab.admission import REGISTRATION, REGISTRATIONS
from lab.install import NAMESPACE
from lab.nodes import NODES, cloud_node
from lab.session import Lab
from settings.anycast_ip import NEED_LABEL
from webhook.anycast_ip import PATH, is_tainted

CONCURRENCY = 8
CALLS = "apiserver_admission_webhook_request_total"
DURATION = "apiserver_admission_webhook_admission_duration_seconds"
LABELS = {NEED_LABEL: "true"}
NOOP = (BENCH, "noop")
TAINTED, OTHER = "a node that is tainted", "a node of no concern"


@dataclass(frozen=True)
class Creations:
    """Of *size* nodes, *tainted* came back so; by how much the API server's counters grew meanwhile."""

    size: int
    tainted: int
    grown: Samples


def figures(lab: Lab, *, size: int, rounds: int, requests: int) -> list[Figure]:
    """Nothing of what is compared with runs, or is called, afterwards."""
    authority = deploy(lab.client, "noop", "bench.noop:app")
    scale(lab.client, NOOP, 1)
    await_scaled(lab, NOOP, 1)
    ours, noop = _registered(lab, authority)
    found = [
        *of_creations(ours, noop, create(lab, size, LABELS), create(lab, size, {})),
        *compared(asked(lab, _questions(), rounds=rounds, requests=requests)),
    ]
    lab.client.delete(REGISTRATIONS, "bench-noop")
    scale(lab.client, NOOP, 0)
    return found


def _registered(lab: Lab, authority: bytes) -> tuple[str, str]:
    """The names of our webhook and of the no-op's, which is called beside it from now on."""
    ours = lab.client.get(REGISTRATIONS, REGISTRATION)
    noop = noop_registration(ours, authority)
    lab.client.create(REGISTRATIONS, noop)
    name = noop["webhooks"][0]["name"]
    lab.wait(
        lambda: total(create(lab, 1, LABELS).grown, CALLS, name=name, code="200"),
        PATIENCE,
        "the no-op to be called",
    )
    return ours["webhooks"][0]["name"], name


def create(lab: Lab, size: int, labels: Mapping[str, str]) -> Creations:
    """Create so many nodes in a dry run, which admission takes no notice of."""
    before = _counted(lab)
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        tainted = sum(pool.map(lambda number: _is_born_tainted(lab, number, labels), range(size)))
    return Creations(size, tainted, growth(before, _counted(lab)))


def _is_born_tainted(lab: Lab, number: int, labels: Mapping[str, str]) -> bool:
    body = cloud_node(f"dry-{number}", f"ins-{number:08x}", labels)
    created = lab.client.request("POST", NODES.path(), body=body, query={"dryRun": "All"}, type=Node)
    return is_tainted(created)


def _counted(lab: Lab) -> dict[str, float]:
    scrape = lab.client.request("GET", "/metrics", type=bytes)
    return samples(scrape, CALLS, f"{DURATION}_sum", f"{DURATION}_count")


def of_creations(ours: str, noop: str, wanted: Creations, others: Creations) -> list[Figure]:
    """*wanted* nodes have the label, and *others* have not."""
    calls = total(wanted.grown, CALLS, name=ours)
    return [
        figure("nodes created: calls of the webhook per node", calls / wanted.size, "", at_most=1.0),
        figure("nodes created: tainted at birth, per node", wanted.tainted / wanted.size, "", at_least=1.0),
        figure(
            "nodes created: call of the webhook",
            _milliseconds(wanted, ours),
            "ms",
            baseline=_milliseconds(wanted, noop),
            at_most=1.5,
        ),
        figure(
            "nodes without the label: calls of the webhook",
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
    server = (NAMESPACE, SERVERS)
    tainted, other = bodies(LABELS), bodies({})
    return {
        BARE: Question(NOOP, "/", tainted),
        TAINTED: Question(server, PATH, tainted),
        OTHER: Question(server, PATH, other),
    }


def bodies(labels: Mapping[str, str]) -> tuple[bytes, ...]:
    """A thousand AdmissionReviews as the API server sends them for the creation of a node, each of another."""
    return tuple(_body(number, labels) for number in range(1000))


def _body(number: int, labels: Mapping[str, str]) -> bytes:
    name, uid = f"node-{number}", f"6c1f3f0a-2b7e-4c57-9d0c-{number:012d}"
    asked = {
        "uid": uid,
        "kind": {"group": "", "version": "v1", "kind": "Node"},
        "resource": {"group": "", "version": "v1", "resource": "nodes"},
        "name": name,
        "operation": "CREATE",
        "userInfo": {"username": f"system:node:{name}", "groups": ["system:nodes", "system:authenticated"]},
        "object": cloud_node(name, f"ins-{number:08x}", labels),
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return msgspec.json.encode(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": asked}
    )
