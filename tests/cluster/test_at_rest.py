"""Beside a policy engine, with objects of all features: questions are answered, and at rest nothing is written."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dev.lab.bootstrap import running
from dev.lab.install import merged
from dev.lab.session import Lab
from dev.lab.waiting import until
from kube.types import Pod
from tests import audit
from tests.audit import Request
from tests.cluster import anycast, elasticity, ingress_daemonset, workloads
from tests.cluster.elasticity import Shop, keeping, template
from tests.cluster.ingress_daemonset import by_deployment, detaching
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.test_cli import run as command
from tests.pages import ROOT

pytestmark = pytest.mark.nightly

TROUBLESHOOTING = ROOT / "docs" / "how-to" / "troubleshooting.md"

VALUES = merged(
    merged(elasticity.VALUES, ingress_daemonset.VALUES),
    {"ipReservation": {"enabled": True}, "config": workloads.CONFIG},
)
NODES = ("a", "b", "c")
CALM, WINDOW = 20.0, 120.0
"""Seconds without a write after which it is at rest, and that it then stays so."""
SECONDS = 240


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running(values=VALUES, nodes=2, kwok_nodes=2, cloud={}, policy=True) as up:
        yield up


@dataclass(frozen=True)
class Objects:
    """Of each feature, all that has to be done for them being done: an IP is reserved for *pod*, *node* is open.

    *other* runs beside *pod*, on the node that the scheduler chose.
    """

    pod: Pod
    other: Pod
    node: str
    edge: Edge
    shop: Shop


@pytest.fixture(scope="module")
def objects(lab: Lab) -> Iterator[Objects]:
    with anycast.joined(lab) as fleet:
        node = fleet.join("n1").metadata.name
        edge = Edge(lab, *NODES)
        edge.create(healthCheckNodePorts=[10080], rolling=detaching(2, **by_deployment(1)))
        shop = Shop(lab)
        shop.deploy("web", 4, template(keeping(2)))
        redis = workloads.reserved_namespace(lab.client, "redis")
        [pod, other] = workloads.running_statefulset(lab, redis, 2)
        lab.client.delete(workloads.PODS, pod.metadata.name, redis)
        lab.wait(
            lambda: is_reserved(lab),
            SECONDS,
            "an address to be reserved, and the end of its pod to be stored",
        )
        edge.settle(*NODES)
        shop.settle("web", 4)
        fleet.await_open("n1")
        yield Objects(pod, other, node, edge, shop)


@pytest.mark.usefixtures("objects")
def test_at_rest_nothing_is_written_for_two_minutes(lab: Lab, audit_logs: Path) -> None:
    log = audit_logs / f"{lab.directory.name}.log"
    until(lambda: seconds_since_last(writes(log)) > CALM, SECONDS, "no more writes", every=2)
    begin = len(writes(log))
    end = time.monotonic() + WINDOW
    until(lambda: time.monotonic() > end or writes(log)[begin:], WINDOW + 60, "the time to pass", every=5)

    assert [str(each) for each in writes(log)[begin:]] == []


def test_each_of_the_ten_questions_is_answered_by_its_command(lab: Lab, objects: Objects) -> None:
    pod, [address] = objects.pod, objects.pod.status.addresses
    names = {"POD": pod.metadata.name, "IP": address, "IDS": "web"}
    nodes = {"explain": objects.node, "simulate": objects.other.spec.node_name}
    namespaces = {"explain": "redis", "elasticity": objects.shop.namespace, "rollout": objects.edge.namespace}
    expected = {
        "status": "drawbridge-controllers-",
        "doctor": "ok",
        "explain pod": address,
        "reservations list": address,
        "explain ip": f"redis/{pod.metadata.name}",
        "explain node": "open",
        "addresses list": objects.node,
        "simulate drain": "redis",
        "elasticity list": "super node",
        "rollout get": "Complete",
    }
    answers = {}
    for question in questions():
        words = [*question, "-o", "json"]
        values = names | {"NAMESPACE": namespaces.get(words[1], ""), "NODE": nodes.get(words[1], "")}
        verb = " ".join(words[1:3]) if " ".join(words[1:3]) in expected else words[1]
        answers[verb] = command(lab, *(values.get(word, word) for word in words[1:])).stdout

    assert len(answers) == 10
    unanswered = {verb: answer for verb, answer in answers.items() if expected[verb] not in answer}
    assert unanswered == {}


def questions() -> list[list[str]]:
    """The commands of the table in docs/how-to/troubleshooting.md."""
    [section] = re.findall(
        r"^## Ten questions\n(.*?)^## ", TROUBLESHOOTING.read_text(), re.DOTALL | re.MULTILINE
    )
    return [found.split() for found in re.findall(r"`(drawbridge [^`]+)` \|$", section, re.MULTILINE)]


def is_reserved(lab: Lab) -> bool:
    held = workloads.all_records(lab, "v3")
    return bool(held) and all(each.ended for each in held)


def writes(log: Path) -> Sequence[Request]:
    """By Drawbridge's ServiceAccounts and those that it has made."""
    return audit.read(log).writes


def seconds_since_last(found: Sequence[Request]) -> float:
    last = max(datetime.fromisoformat(each.at) for each in found)
    return (datetime.now(UTC) - last).total_seconds()
