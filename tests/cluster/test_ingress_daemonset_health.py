"""A load balancer gets 503 from the real health checker of each node before its pods are replaced."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import pytest

from dev.lab.health_checkers import Checker
from dev.lab.session import Lab
from tests.cluster import workloads
from tests.cluster.ingress_daemonset import TO_BE_UPDATED, confirmed, detaching, image_of
from tests.cluster.ingress_daemonset_checkers import (
    asking,
    await_all,
    checking,
    judged_by_answers,
)
from tests.cluster.ingress_daemonset_edge import Edge

NODES = tuple("abcde")
PORT, GRACE = 10085, 10
SERIES = {
    "drawbridge_ingress_daemonset_altered",
    "drawbridge_ingress_daemonset_canary_paused",
    "drawbridge_ingress_daemonset_canary_measurements_total",
    "drawbridge_ingress_daemonset_canary_unmeasured",
    "drawbridge_ingress_daemonset_waiting",
    "drawbridge_ingress_daemonset_checker_reads_total",
    "drawbridge_ingress_daemonset_halted",
    "drawbridge_ingress_daemonset_nodes",
    "drawbridge_ingress_daemonset_unconfirmed",
    "drawbridge_ingress_daemonset_writes_total",
    "drawbridge_ingress_daemonset_plan_seconds_bucket",
    "drawbridge_ingress_daemonset_rolled_back",
    "drawbridge_executor_failures_total",
    "drawbridge_healthchecker_answers_total",
    "drawbridge_healthchecker_blind",
    "drawbridge_healthchecker_healthy",
    "drawbridge_healthchecker_sight_age_seconds",
}
"""That alerts and dashboards query of IngressDaemonSets: of the controllers, and of health checkers."""


@dataclass(frozen=True)
class Balanced:
    """Nodes with a health checker for each."""

    edge: Edge
    checkers: dict[str, Checker]

    @property
    def all(self) -> list[Checker]:
        return list(self.checkers.values())


@pytest.fixture(scope="module")
def balanced(edge_lab: Lab) -> Iterator[Balanced]:
    edge = Edge(edge_lab, *NODES)
    edge.create(healthCheckNodePorts=[PORT], rolling=detaching(5, **confirmed(GRACE)))
    edge.settle(*NODES)
    with checking(edge, NODES) as checkers:
        await_all(edge_lab, list(checkers.values()), 200, "ok")
        yield Balanced(edge, checkers)


@pytest.mark.promise
def test_each_node_is_off_before_its_pods_go_and_on_when_all_are_there(balanced: Balanced) -> None:
    edge = balanced.edge
    with judged_by_answers(edge, balanced.checkers) as outside, asking(edge.lab, balanced.all):
        edge.retemplate("proxy:2")
        edge.settle(*NODES, image="proxy:2")
        assert outside.findings() == []

    for node, checker in balanced.checkers.items():
        off = [each for each in checker.answers if each.status == 503]
        on = next(each for each in checker.answers if each.status == 200 and each.at > off[-1].at)
        assert checker.course() == [200, 503, 200]
        assert f"is about to be updated (annotation {TO_BE_UPDATED})" in off[0].text
        assert on.at > ready_at(edge, node)


def test_the_controllers_and_health_checkers_have_their_series(balanced: Balanced) -> None:
    [controllers] = workloads.metrics(balanced.edge.lab, "controllers")
    text = controllers + balanced.all[0].ask("/metrics").text

    assert SERIES - {*re.findall(r"^\w+", text, re.MULTILINE)} == set()


@pytest.mark.promise
def test_pods_stay_while_connections_are_open_on_their_node(edge_lab: Lab) -> None:
    edge = Edge(edge_lab, "a")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # The health checkers of a lab share the network of this machine.
        wait = {"waitForConnections": {"ports": [listener.getsockname()[1]], "timeoutSeconds": 600}}
        rolling = detaching(1, **confirmed(1), **wait)
        edge.create(
            healthCheckNodePorts=[PORT + 1], pod={"hostNetwork": True}, podsPerNode=1, rolling=rolling
        )
        edge.settle("a", pods=1)
        with checking(edge, ["a"]) as checkers, socket.create_connection(listener.getsockname()) as client:
            await_all(edge_lab, list(checkers.values()), 200, "ok")
            edge.retemplate("proxy:2")
            edge.wait(lambda: "1 connections are open" in edge.why("a"), "the status to say so")
            assert [image_of(each) for each in edge.pods("a")] == ["proxy:1"]
            client.close()
            edge.settle("a", image="proxy:2", pods=1)
    assert "ConnectionsOpen" not in edge.events()


def ready_at(edge: Edge, node: str) -> datetime:
    """When the last of its pods became ready."""
    conditions = [each for pod in edge.pods(node) for each in pod["status"]["conditions"]]
    return max(
        datetime.fromisoformat(each["lastTransitionTime"]) for each in conditions if each["type"] == "Ready"
    )
