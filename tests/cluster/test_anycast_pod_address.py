"""A game server learns the address of its node: on a real API server and scheduler, in an emulated cloud."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.anycast_ip import ADDRESS, NODE_ADDRESS
from dev.lab.nodes import NODES
from dev.lab.session import Lab
from dev.lab.watching import observed_by_now, watching
from kube.resources import NAMESPACES, PODS
from kube.types import Pod
from tests.cluster import anycast, workloads
from tests.cluster.anycast import FLEET, Fleet


@pytest.fixture(scope="module", autouse=True)
def _switched_on(cloud_lab: Lab) -> Iterator[None]:
    with anycast.configured(cloud_lab, podAddress={"enabled": True}):
        yield


@pytest.mark.promise
def test_a_pod_has_the_address_of_its_node_from_its_first_moment_there(cloud_lab: Lab, fleet: Fleet) -> None:
    """It is created before its node has joined, and starts as soon as that opens."""
    lab = cloud_lab
    games = workloads.namespace(lab.client, f"games-{fleet.token}", **{NODE_ADDRESS: "copy"})
    others = workloads.namespace(lab.client, f"others-{fleet.token}")
    with watching(lab.client, {PODS: Pod}) as seen:
        for namespace in (games, others):
            workloads.create_pod(lab, namespace, "match-1", **game(fleet))
        fleet.join("n1")
        for namespace in (games, others):
            fleet.wait(lambda: is_running(lab, namespace), f"the pod of {namespace} to run")  # noqa: B023
        pods = [each.object for each in observed_by_now(seen)]
    bound = [each for each in pods if isinstance(each, Pod) and each.spec.node_name]
    of_games, of_others = (
        {each.metadata.annotations.get(NODE_ADDRESS) for each in bound if each.metadata.namespace == name}
        for name in (games, others)
    )
    assert of_games == {fleet.node("n1").metadata.annotations[ADDRESS]}
    assert of_others == {None}
    forget(lab, games, others)


@pytest.mark.promise
def test_a_pod_that_waits_is_bound_when_the_status_of_its_node_shows_the_address(
    cloud_lab: Lab, fleet: Fleet
) -> None:
    lab = cloud_lab
    games = workloads.namespace(lab.client, f"games-{fleet.token}", **{NODE_ADDRESS: "wait"})
    fleet.join("n1")
    fleet.await_open("n1")
    address = fleet.node("n1").metadata.annotations[ADDRESS]
    workloads.create_pod(lab, games, "match-1", **game(fleet))
    fleet.wait(
        lambda: f"has anycast IP {address}, but none as ExternalIP" in refused(lab, games), "the reason"
    )
    assert not workloads.get_pod(lab, games, "match-1").spec.node_name

    show(fleet, "n1", address)
    fleet.wait(lambda: workloads.get_pod(lab, games, "match-1").spec.node_name, "the pod to be bound")

    bound = workloads.get_pod(lab, games, "match-1")
    assert bound.metadata.annotations[NODE_ADDRESS] == address
    forget(lab, games)


def game(fleet: Fleet) -> dict[str, Any]:
    """Shown by the downward API, too."""
    path = f"metadata.annotations['{NODE_ADDRESS}']"
    env = [{"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": path}}}]
    container = {"name": "game", "image": "redis", "command": ["redis-server"], "env": env}
    return {"nodeSelector": {FLEET: fleet.token}, "containers": [container]}


def is_running(lab: Lab, namespace: str) -> bool:
    return workloads.get_pod(lab, namespace, "match-1").status.phase == "Running"


def refused(lab: Lab, namespace: str) -> str:
    return "".join(each["message"] for each in workloads.events(lab, namespace, "FailedScheduling"))


def show(fleet: Fleet, name: str, address: str) -> None:
    """As the cloud's controller of nodes does."""
    shown = [*fleet.client.get(NODES, fleet.name_of(name))["status"]["addresses"]]
    status = {"addresses": [*shown, {"type": "ExternalIP", "address": address}]}
    fleet.client.patch(NODES.sub("status"), fleet.name_of(name), {"status": status})


def forget(lab: Lab, *namespaces: str) -> None:
    for each in namespaces:
        lab.client.delete(NAMESPACES, each)
