"""A real Prometheus finds the health checkers of all namespaces, and the series of IngressDaemonSets.

And it is asked about canaries.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from dev.lab.errors import LabError
from dev.lab.install import merged
from dev.lab.session import Lab
from tests.cluster import prometheus, workloads
from tests.cluster.ingress_daemonset import DAEMONSETS, VALUES, by_deployment, detaching, image_of
from tests.cluster.ingress_daemonset_checkers import await_all, checking
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.prometheus import OF_INGRESS_DAEMONSETS, Prometheus

pytestmark = [pytest.mark.apart, pytest.mark.nightly]

NODES = ("a", "b")
PORT = 10090


@pytest.fixture(scope="module")
def edge(edge_lab: Lab) -> Edge:
    edge = Edge(edge_lab, *NODES)
    edge.create(healthCheckNodePorts=[PORT])
    edge.settle(*NODES)
    return edge


@pytest.fixture(scope="module")
def seeing(edge: Edge, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with checking(edge, NODES) as checkers:
        await_all(edge.lab, list(checkers.values()), 200, "ok")
        # No kubelet of the lab runs their pods, and it is these that are found.
        edge.wait(lambda: ready_checkers(edge) == len(NODES), "a pod for each health checker")
        where = {edge.node_name(node): urlsplit(each.url).hostname or "" for node, each in checkers.items()}
        with prometheus.scraping(edge.lab, tmp_path_factory.mktemp("prometheus"), where) as running_one:
            yield running_one


def ready_checkers(edge: Edge) -> int:
    found = edge.client.list(DAEMONSETS, edge.namespace).items
    return sum(each.get("status", {}).get("numberReady", 0) for each in found)


def test_the_health_checkers_and_the_series_of_ingress_daemonsets_are_scraped(
    edge: Edge, seeing: Prometheus
) -> None:
    def healthy() -> set[tuple[str, str]]:
        found = [each["metric"] for each in seeing.query("drawbridge_healthchecker_healthy == 1")]
        return {(each["namespace"], each["container"]) for each in found if len(found) == len(NODES)}

    what = "Prometheus to see both"
    assert edge.lab.wait(healthy, 60, what) == {(edge.namespace, "health-checker")}
    with suppress(LabError):
        edge.lab.wait(lambda: seeing.names() >= OF_INGRESS_DAEMONSETS, 60, "all of them")
    assert OF_INGRESS_DAEMONSETS - seeing.names() == set()
    # Its namespace is not overwritten by that of the pod that is scraped.
    own = f'drawbridge_ingress_daemonset_nodes{{namespace="{edge.namespace}", state="desired"}} == 2'
    edge.lab.wait(lambda: seeing.query(own), 60, own)


@pytest.fixture
def asking(edge_lab: Lab, seeing: Prometheus) -> Iterator[None]:
    """The controllers ask that Prometheus."""
    workloads.reconfigure(edge_lab, merged(VALUES, {"ingressDaemonSet": {"prometheus": {"url": seeing.url}}}))
    yield
    workloads.reconfigure(edge_lab, VALUES)


@pytest.mark.promise
def test_a_canary_is_promoted_or_fails_by_what_prometheus_has(edge_lab: Lab, asking: None) -> None:
    measured = Edge(edge_lab, *"abc")
    metric = {"query": "no_such_series", "min": 3, "forSeconds": 5, "intervalSeconds": 5}
    measured.create(rolling=detaching(2, **by_deployment(0), canary={"nodes": 1, "metric": metric}))
    measured.settle(*"abc")
    measured.wait(lambda: measured.status().get("currentRevision"), "the revision in the status")
    measured.retemplate("proxy:2")
    assert "0 series: no series matches it" in measured.await_event("CanaryUnmeasured")
    assert sorted(image_of(each) for each in measured.pods()) == ["proxy:1"] * 4 + ["proxy:2"] * 2

    ready = f'max(drawbridge_ingress_daemonset_nodes{{namespace="{measured.namespace}", state="ready"}})'
    measure(measured, query=ready)
    measured.settle(*"abc", image="proxy:2")
    assert "by its metric" in measured.await_event("CanaryPromoted")

    measured.wait(lambda: "rollout" not in measured.status(), "the end of the rollout")
    measure(measured, query="vector(1)", failureLimit=2)
    measured.change(updateStrategy={"rollingUpdate": {"autoRollback": True}})
    measured.retemplate("proxy:3")
    said = measured.await_event("RollbackStarted")
    assert "its metric has failed: it is 1, below min (3) (2 of 2)" in said
    measured.settle(*"abc", image="proxy:2")


def measure(edge: Edge, **metric: Any) -> None:
    edge.change(updateStrategy={"rollingUpdate": {"canary": {"metric": metric}}})
