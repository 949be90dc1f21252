"""A policy engine changes each template, and is down for a while."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.lab import faults
from dev.lab.bootstrap import running
from dev.lab.install import merged
from dev.lab.session import Lab
from kube.errors import ApiError
from kube.resources import DEPLOYMENTS
from tests import audit
from tests.chaos.outside import Detacher, judged, of_edges
from tests.cluster import ingress_daemonset
from tests.cluster.ingress_daemonset import DETACHED, INGRESS_DAEMONSETS, by_node, detaching, image_of
from tests.cluster.ingress_daemonset_edge import Edge

VALUES = merged(ingress_daemonset.VALUES, {"controllers": {"replicaCount": 2}})
NODES = tuple("abcdefgh")
LIMIT, GRACE = 2, 4
POLICY = "dev.lab.policy"
DOWN, PER_SECOND = 15, 4
"""Seconds that it is down, and how many attempts to write there may be in each, for two nodes that are under way."""
EDITS = 16
"""Of each Deployment, as Drawbridge writes it."""


@pytest.fixture(scope="module")
def edge_lab() -> Iterator[Lab]:
    with running(values=VALUES, calico=None, nodes=2, kwok_nodes=0, policy=True) as up:
        yield up


@contextmanager
def rolling_out(lab: Lab) -> Iterator[Edge]:
    """To a second image; in the end all nodes have it, and every pod was replaced on a detached node."""
    edge = Edge(lab, *NODES)
    where = {"balancer": Detacher(DETACHED, GRACE), "namespace": edge.namespace}
    with judged(lab, of_edges(), INGRESS_DAEMONSETS, **where) as outside:
        edge.create(rolling=detaching(LIMIT, **by_node(GRACE)))
        edge.settle(*NODES)
        edge.retemplate("proxy:2")
        edge.wait(lambda: updated(edge), "the first node to be updated")
        yield edge
        edge.settle(*NODES, image="proxy:2")
        edge.wait(lambda: edge.reasons()["Degraded"] == "False AsDesired", "it to be as desired")
        assert outside.at_rest() == []


def updated(edge: Edge) -> set[str]:
    templates = {node: each["spec"]["template"] for node, each in edge.deployments().items()}
    return {node for node, each in templates.items() if image_of(each) == "proxy:2"}


def test_a_policy_engine_that_is_down_for_a_while_holds_a_rollout_up_and_breaks_nothing(
    edge_lab: Lab, audit_logs: Path
) -> None:
    log = audit_logs / f"{edge_lab.directory.name}.log"
    with rolling_out(edge_lab) as edge:
        with faults.killed(edge_lab, POLICY):
            edge.wait(lambda: is_refused(edge), "writes to be refused")
            before, attempts = updated(edge), len(audit.read(log).writes)
            end = time.monotonic() + DOWN
            edge.wait(lambda: time.monotonic() > end, "the time to pass")
            assert len(audit.read(log).writes) - attempts <= DOWN * PER_SECOND
            assert updated(edge) == before != set(NODES)
        edge.wait(lambda: not is_refused(edge), "the policy engine to be back")


def is_refused(edge: Edge) -> bool:
    """Whether the API server refuses what it cannot ask the policy about."""
    path = DEPLOYMENTS.path(edge.namespace, f"web-{edge.node_name(NODES[0])}")
    try:
        edge.client.request(
            "PATCH",
            path,
            body={"metadata": {"labels": {"tests/probe": "x"}}},
            query={"dryRun": "All"},
        )
    except ApiError as error:
        return error.status == 500
    return False
