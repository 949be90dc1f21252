"""Controllers and the API server come to their end in the midst of rollouts: budgets, graces and order are kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

import pytest

from dev.lab import faults
from dev.lab.bootstrap import running
from dev.lab.install import merged
from dev.lab.session import Lab
from dev.outside import Detacher, judged, of_edges
from tests.chaos import programs
from tests.cluster import ingress_daemonset
from tests.cluster.ingress_daemonset import (
    DETACHED,
    INGRESS_DAEMONSETS,
    awaiting,
    by_deployment,
    by_node,
    detaching,
    image_of,
)
from tests.cluster.ingress_daemonset_checkers import await_all, checking
from tests.cluster.ingress_daemonset_edge import Edge, confirming

VALUES = merged(
    ingress_daemonset.VALUES,
    {
        "controllers": {"replicaCount": 2, "leaseDuration": "3s"},
    },
)
NODES = tuple("abcdefgh")
KILLS = 10
LIFE = 2.0
"""Seconds that a leader leads at most."""
PORT = 10080
BOUND = 6
GRACE = 6
OLD = "proxy:1"


@pytest.fixture(scope="module")
def edge_lab() -> Iterator[Lab]:
    with running(values=VALUES, calico=None, nodes=2, kwok_nodes=0) as up:
        yield up


def test_controllers_are_killed_again_and_again_at_random(edge_lab: Lab) -> None:
    dice = Random(7)  # noqa: S311 - dice, not secrets
    edge = Edge(edge_lab, *NODES)
    where = {"balancer": Detacher(DETACHED, GRACE), "namespace": edge.namespace}
    with judged(edge_lab, of_edges(), INGRESS_DAEMONSETS, **where) as outside:
        edge.create(rolling=detaching(2, **by_deployment(3), **by_node(GRACE), **awaiting(1)))
        edge.settle(*NODES)
        killed, version = "", 1
        with confirming(edge):
            for _ in range(KILLS):
                if edge.is_settled(*NODES, image=f"proxy:{version}"):
                    version += 1
                    edge.retemplate(f"proxy:{version}")
                leader = programs.another_leader(edge_lab, than=killed)
                time.sleep(dice.uniform(0.0, LIFE))
                programs.kill_for_good(edge_lab, leader)
                killed = leader
            edge.settle(*NODES, image=f"proxy:{version}")

        assert outside.at_rest() == []


def test_the_api_server_crashes_and_stands_still_and_health_checks_fail_meanwhile(edge_lab: Lab) -> None:
    # One that was away forgets what happened before, which the replay must know.
    edge = Edge(edge_lab, *NODES)
    where = {"balancer": Detacher(DETACHED, GRACE), "namespace": edge.namespace}
    with (
        faults.second_api_server(edge_lab) as witness,
        judged(edge_lab, of_edges(), INGRESS_DAEMONSETS, client=witness, **where) as outside,
    ):
        edge.create(
            healthCheckNodePorts=[PORT],
            rolling=detaching(2, **by_deployment(GRACE), **by_node(GRACE)),
        )
        edge.settle(*NODES)
        variables = {"ON_API_SERVER_OUTAGE": "fail", "LONGEST_WITHOUT_SIGHT_SECONDS": str(BOUND)}
        with checking(edge, "ah", **variables) as checkers:
            asked = list(checkers.values())
            await_all(edge_lab, asked, 200)
            edge.retemplate("proxy:2")
            await_full(edge)
            with faults.killed(edge_lab, "kube-apiserver"):
                edge_lab.wait(lambda: not faults.is_ready(edge_lab.client), 30, "the API server to be away")
            edge_lab.wait(lambda: faults.is_ready(edge_lab.client), 60, "the API server to be ready")
            await_full(edge)
            with faults.frozen(edge_lab, "kube-apiserver"):
                await_all(edge_lab, asked, 503, "was last seen")
            edge_lab.wait(lambda: faults.is_ready(edge_lab.client), 60, "the API server to be ready")
            edge.settle(*NODES, image="proxy:2")
            await_all(edge_lab, asked, 200)

        assert outside.at_rest() == []


def await_full(edge: Edge) -> None:
    """Until as many nodes are detached as may be, and their graces run: then no annotation is under way."""

    def full() -> bool:
        detached, held = edge.detached(), edge.deployments()
        return len(detached) == 2 and all(
            image_of(held[each]["spec"]["template"]) == OLD for each in detached
        )

    edge.wait(full, "two nodes to be detached")
