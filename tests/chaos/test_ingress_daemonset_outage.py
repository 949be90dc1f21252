"""The API server stands still in the midst of a rollout over thirty nodes, each with its real health checker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from dev.lab import faults
from dev.lab.bootstrap import running
from dev.lab.install import merged
from dev.lab.session import Lab
from dev.outside import Outside
from tests.cluster import ingress_daemonset
from tests.cluster.ingress_daemonset import confirmed, detaching
from tests.cluster.ingress_daemonset_checkers import await_all, checking, judged_by_answers
from tests.cluster.ingress_daemonset_edge import Edge

VALUES = merged(ingress_daemonset.VALUES, {"controllers": {"replicaCount": 2}})
NODES = tuple(f"n{number:02}" for number in range(30))
LIMIT, GRACE, PORT = 6, 5, 10080
BEGUN = 3
"""Nodes that have the new template when the API server stops."""
SEEN = 5.0
"""Seconds until health checkers and the load balancer have seen what was written before the API server stops."""


@dataclass(frozen=True)
class Fleet:
    edge: Edge
    outside: Outside

    @property
    def image(self) -> str:
        """What comes next."""
        template = self.edge.resource()["spec"]["template"]
        return f"proxy:{int(template['spec']['containers'][0]['image'].partition(':')[2]) + 1}"


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """What both tests share. The judge goes on also while the API server is away."""
    with (
        running(values=VALUES, calico=None, nodes=2, kwok_nodes=0) as lab,
        faults.second_api_server(lab) as witness,
    ):
        edge = Edge(lab, *NODES)
        edge.create(healthCheckNodePorts=[PORT], rolling=detaching(LIMIT, **confirmed(GRACE)))
        edge.settle(*NODES)
        with checking(edge, NODES) as checkers:
            await_all(lab, list(checkers.values()), 200)
            with judged_by_answers(edge, checkers, witness) as outside:
                yield Fleet(edge, outside)


@pytest.mark.parametrize("seconds", [60, 300])
def test_without_the_api_server_no_attached_node_turns_503_and_no_pod_is_replaced_unconfirmed(
    fleet: Fleet, seconds: int
) -> None:
    edge, image = fleet.edge, fleet.image
    edge.retemplate(image)
    edge.wait(lambda: updated(edge, image) >= BEGUN, f"{BEGUN} nodes to have {image}")
    with outage(edge.lab):
        time.sleep(SEEN)
        before = refusing(fleet)
        time.sleep(seconds - SEEN)  # its length
        assert refusing(fleet) <= before
    edge.lab.wait(lambda: faults.is_ready(edge.lab.client), 120, "the API server to be ready")
    edge.settle(*NODES, image=image)

    assert fleet.outside.at_rest() == []


def refusing(fleet: Fleet) -> set[str]:
    return {node for node, status in fleet.outside.seen.answers.items() if status != 200}


@contextmanager
def outage(lab: Lab) -> Iterator[None]:
    """The API server stands still, and kube-controller-manager ends because it cannot renew its lease.

    The lab's has no leader election, so it would survive, and after the outage it would find the heartbeats of all
    nodes too old and mark their pods as not ready. One that has been restarted gives each node a new grace period.
    """
    with faults.killed(lab, "kube-controller-manager"), faults.frozen(lab, "kube-apiserver"):
        yield


def updated(edge: Edge, image: str) -> int:
    held = edge.deployments().values()
    return sum(ingress_daemonset.image_of(each["spec"]["template"]) == image for each in held)
