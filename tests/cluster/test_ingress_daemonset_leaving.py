"""Switched off or uninstalled in mid-rollout, the feature leaves no node detached, and no finalizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.ingress_daemonset import INGRESS_DAEMONSETS, PAUSED_UNTIL
from api.ingress_daemonset.template import EXCLUDED
from dev.lab.bootstrap import running
from dev.lab.install import RELEASE
from dev.lab.session import Lab
from tests.cluster import elasticity_leaving as leaving
from tests.cluster import ingress_daemonset
from tests.cluster.ingress_daemonset_edge import Edge

pytestmark = pytest.mark.nightly

NODES = ("a", "b", "c")
LONG = 3600
"""Seconds: the grace of a rollout that would not end by itself."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running(values=ingress_daemonset.VALUES, calico=None, nodes=2, kwok_nodes=0) as up:
        yield up


@pytest.fixture(scope="module")
def edge(lab: Lab) -> Edge:
    edge = Edge(lab, *NODES)
    rolling = ingress_daemonset.detaching(1, labelNodeToDetach=True, **ingress_daemonset.by_node(LONG))
    edge.create(rolling=rolling)
    edge.settle(*NODES)
    return edge


def switch(lab: Lab, *, enabled: bool) -> None:
    leaving.switch(lab, {"ingressDaemonSet": {"enabled": enabled}})


def assert_all_are_attached(edge: Edge) -> None:
    assert edge.detached() == set()
    assert not any(EXCLUDED in each["metadata"]["labels"] for each in edge.nodes())
    metadata: dict[str, Any] = edge.resource()["metadata"]
    assert "finalizers" not in metadata
    assert PAUSED_UNTIL in metadata["annotations"]
    images = {ingress_daemonset.image_of(each["spec"]["template"]) for each in edge.deployments().values()}
    assert images == {"proxy:1"}, "no pod was replaced"


def test_switched_off_in_mid_rollout_it_leaves_no_node_detached(lab: Lab, edge: Edge) -> None:
    edge.retemplate("proxy:2")
    edge.wait(edge.detached, "a node to be detached")

    switch(lab, enabled=False)
    assert_all_are_attached(edge)


def test_uninstalled_in_mid_rollout_it_leaves_no_node_detached(lab: Lab, edge: Edge) -> None:
    switch(lab, enabled=True)
    expired = {"metadata": {"annotations": {PAUSED_UNTIL: None}}}
    lab.client.patch(INGRESS_DAEMONSETS, "web", expired, edge.namespace)
    edge.wait(edge.detached, "a node to be detached again")

    lab.helm("uninstall", RELEASE, *leaving.WHERE)
    assert_all_are_attached(edge)
