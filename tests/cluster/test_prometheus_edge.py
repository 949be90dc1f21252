"""A real Prometheus finds the health checkers of all namespaces, and the series of IngressDaemonSets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from dev.lab.errors import LabError
from dev.lab.session import Lab
from kube.resources import DAEMON_SETS
from tests.cluster import prometheus
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
    found = edge.client.list(DAEMON_SETS, edge.namespace).items
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
