"""Clients of MetalLB's address lose nothing but what is under way when it moves, while nodes are detached by label."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from kube.resources import SERVICES
from tests.cluster.ingress_daemonset import EDGE, Raw, detaching
from tests.cluster.ingress_daemonset_edge import Edge
from tests.e2e import metallb
from tests.e2e.client import RATE, Report
from tests.e2e.cluster import EDGE_IMAGE
from tests.e2e.real import Real
from tests.e2e.test_edge import ROUTED_SECONDS, container, version_of
from tests.e2e.traffic import measured, requests

LABELLED = detaching(1, labelNodeToDetach=True, confirmTimeoutSeconds=5)
UNLABELLED = detaching(1, annotateDeploymentToDetach={"gracePeriodSeconds": 5})
"""The same time passes, but MetalLB does not learn of it."""
UNDER_WAY = RATE // 10
"""Requests that have begun when the address moves to the other node, and are reset there: more than there ever are."""


@dataclass(frozen=True)
class Outcome:
    report: Report
    announced: dict[str, bool]
    """By pod that was stopped: whether MetalLB announced its node."""


@pytest.fixture(autouse=True)
def speakers(real_nodes: Real) -> Iterator[None]:
    with metallb.running(real_nodes):
        yield


def test_no_new_request_fails_and_no_pod_is_stopped_where_metallb_announces(real_nodes: Real) -> None:
    with served(real_nodes, LABELLED) as edge:
        outcome = rolled_out(real_nodes, edge)

        assert len(outcome.announced) == 4
        assert not any(outcome.announced.values()), outcome.announced
        assert outcome.report.answers.keys() <= {"200", "ConnectionResetError"}
        assert outcome.report.failed <= UNDER_WAY
        assert outcome.report.answers["200"] > 1000


def test_without_the_label_pods_are_stopped_where_metallb_announces(real_nodes: Real) -> None:
    """The control of the test above."""
    with served(real_nodes, UNLABELLED) as edge:
        outcome = rolled_out(real_nodes, edge)

        assert any(outcome.announced.values()), outcome.announced
        assert outcome.report.failed > UNDER_WAY


@contextmanager
def served(cluster: Real, rolling: Raw) -> Iterator[Edge]:
    """Pods of an IngressDaemonSet on all nodes, behind an address of MetalLB."""
    edge = Edge(cluster)
    cluster.kubectl("label", "node", *cluster.workers, f"{EDGE}={edge.token}")
    try:
        edge.create(pod={"containers": [container("1")]}, rolling=rolling, minReadySeconds=ROUTED_SECONDS)
        edge.client.create(SERVICES, metallb.service("web"), edge.namespace)
        edge.settle(*cluster.workers, image=EDGE_IMAGE)
        edge.wait(lambda: address_of(edge) and metallb.announcing(cluster, "web"), "MetalLB to announce")
        yield edge
    finally:
        cluster.kubectl("delete", "namespace", edge.namespace)
        cluster.kubectl("label", "node", *cluster.workers, f"{EDGE}-")


def address_of(edge: Edge) -> str:
    status = edge.client.get(SERVICES, "web", edge.namespace)["status"]
    return next((str(each["ip"]) for each in status["loadBalancer"].get("ingress", ())), "")


def rolled_out(cluster: Real, edge: Edge) -> Outcome:
    """What became of requests and of pods while all were replaced."""
    stopped: dict[str, bool] = {}

    def measure(attempt: int) -> Report:
        version = str(attempt + 2)
        with (
            metallb.stops(cluster, edge, "web") as found,
            requests(80, address_of(edge), metallb.OUTSIDE) as reports,
        ):
            edge.change(template={"spec": {"containers": [container(version)]}})
            edge.wait(lambda: {version_of(pod) for pod in edge.pods()} == {version}, f"version {version}")
            edge.settle(*cluster.workers, image=EDGE_IMAGE)
        stopped.clear()
        stopped.update(found())
        return reports[0]

    return Outcome(measured(measure), stopped)
