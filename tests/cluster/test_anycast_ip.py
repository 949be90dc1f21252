"""Nodes open when their anycast IP is bound, and not a moment before: on a real control plane, in an emulated cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from api.anycast_ip import ADDRESS, CONDITION, is_tainted, transitions_of
from dev.judge.address import JoinsClosed
from dev.lab.session import Lab
from dev.lab.waiting import at_most
from dev.outside import judged, of_addresses
from kube.resources import DEPLOYMENTS, NAMESPACES
from settings.anycast_ip import NEED_LABEL
from tests.cluster import workloads
from tests.cluster.anycast import FLEET, Fleet, joined
from tests.cluster.scenes import playing, title

CROWD = 80


@pytest.mark.promise
def test_no_pod_of_a_waiting_deployment_comes_to_a_node_without_address_when_a_crowd_joins(
    cloud_lab: Lab, fleet: Fleet
) -> None:
    lab, namespace = cloud_lab, workloads.namespace(cloud_lab.client, f"crowd-{fleet.token}")
    names = [f"n{number}" for number in range(CROWD)]
    # Long enough for a node that opens too early to be found out.
    slowly = lab.cloud.turned(bind_seconds=10)
    with slowly, judged(lab, of_addresses()) as outside:
        deploy(lab, namespace, CROWD, nodeSelector={FLEET: fleet.token})
        with ThreadPoolExecutor(16) as pool:
            # One pod fills a node: there is always one that waits for the next node to open.
            joined = list(pool.map(lambda name: fleet.join(name, pods="1"), names))
        lab.wait(lambda: len(nodes_of(lab, namespace)) == CROWD, 240, "a pod to come to each node")
        fleet.await_open(*names)
        assert outside.findings() == []
    assert all(is_tainted(node) for node in joined)
    assert len({node.metadata.annotations[ADDRESS] for node in fleet.nodes()}) == CROWD
    assert len(fleet.addresses()) == CROWD
    lab.client.delete(NAMESPACES, namespace)


@pytest.mark.promise
def test_nodes_join_closed_while_no_webhook_server_runs(cloud_lab: Lab, fleet: Fleet) -> None:
    """The policy closes them, and the controllers open them as ever."""
    workloads.scale(cloud_lab, "webhook", 0)
    try:
        with judged(cloud_lab, of_addresses()) as outside:
            names = [f"n{number}" for number in range(20)]
            nodes = [fleet.join(name) for name in names]
            fleet.await_open(*names)
            assert outside.findings() == []
    finally:
        workloads.scale(cloud_lab, "webhook", 2)
    assert all(is_tainted(node) for node in nodes)


def nodes_of(lab: Lab, namespace: str) -> set[str]:
    """Those to which its pods have come."""
    return {pod.spec.node_name for pod in workloads.pods_of(lab, namespace)} - {""}


def deploy(lab: Lab, namespace: str, replicas: int, **spec: Any) -> None:
    template = workloads.pod_template({}, **{"terminationGracePeriodSeconds": 0, **spec})
    deployment = workloads.workload("Deployment", "waiting", template, replicas=replicas)
    lab.client.create(DEPLOYMENTS, deployment, namespace)


def a_node_that_is_given_the_label_later_is_closed_in_the_same_update(fleet: Fleet) -> None:
    with judged(fleet.lab, [JoinsClosed()]) as outside:
        assert not is_tainted(fleet.join("a", need=False))
        fleet.lab.kubectl("label", "node", fleet.name_of("a"), f"{NEED_LABEL}=true")
        fleet.await_open("a")
        assert outside.findings() == []


def a_node_says_by_a_condition_whether_its_address_is_bound_and_why_not(fleet: Fleet) -> None:
    fleet.join("a")
    fleet.join("b", instance="")

    fleet.lab.kubectl("wait", f"--for=condition={CONDITION}", f"node/{fleet.name_of('a')}", at_most(60))
    assert not is_tainted(fleet.node("a"))
    (address,) = fleet.on("a")
    (opened,) = transitions_of(fleet.node("a"))
    assert (opened.to, opened.address) == ("open", address["id"])
    assert fleet.condition("a")["message"] == f"{address['ip']} ({address['id']}) is bound to the node"
    why = fleet.wait(lambda: fleet.condition("b"), "the condition of a node that waits")
    assert (why["status"], why["reason"]) == ("False", "NoInstanceID")

    fleet.wait(lambda: readiness(fleet, "a") == ["True"], "kwok to say that the node is ready")
    fleet.patch("a", metadata={"labels": {NEED_LABEL: None}})
    fleet.wait(lambda: not fleet.condition("a"), "the condition to go with the label")
    assert readiness(fleet, "a") == ["True"]
    fleet.patch("b", spec={"providerID": f"qcloud:///100003/{fleet.instance_of('b')}"})
    fleet.wait(lambda: fleet.condition("b")["status"] == "True", "the condition of an open node")


def readiness(fleet: Fleet, name: str) -> list[str]:
    """What the condition of the kubelet says, if it is there."""
    return [each["status"] for each in fleet.conditions(name) if each["type"] == "Ready"]


SCENES: tuple[Callable[[Fleet], None], ...] = (
    a_node_says_by_a_condition_whether_its_address_is_bound_and_why_not,
    a_node_that_is_given_the_label_later_is_closed_in_the_same_update,
)


@pytest.fixture(scope="module")
def played(cloud_lab: Lab) -> Iterator[Callable[[Callable[[Fleet], None]], None]]:
    with playing({each: partial(_play, cloud_lab, each) for each in SCENES}) as end_of:
        yield end_of


def _play(lab: Lab, scene: Callable[[Fleet], None]) -> None:
    with joined(lab) as fleet:
        scene(fleet)


@pytest.mark.promise
@pytest.mark.parametrize("scene", SCENES, ids=title)
def test_in_the_lab(
    played: Callable[[Callable[[Fleet], None]], None], scene: Callable[[Fleet], None]
) -> None:
    played(scene)
