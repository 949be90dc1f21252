"""Pods return from super nodes when local nodes have room again, and some stay: on a real control plane."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from dev.lab.nodes import NODES, cloud_node
from dev.lab.session import Lab
from kube.client import Resource
from kube.resources import STATEFUL_SETS
from tests.cluster.elasticity import SUBNET, Raw, Shop, configured, keeping, template
from tests.cluster.elasticity_subnets import node_of
from tests.cluster.workloads import events, workload

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets")


@dataclass(frozen=True)
class Place:
    """Pods of *spec* run on a super node, or on one local node, which takes none until it is opened."""

    shop: Shop
    node: str
    spec: Mapping[str, Any]

    def pods(self, annotations: Mapping[str, str] | None = None, **spec: Any) -> Raw:
        return template(annotations, **self.spec, **spec)

    def open(self) -> None:
        self.shop.lab.kubectl("uncordon", self.node)


@pytest.fixture(scope="module")
def returning(elastic_lab: Lab) -> Iterator[None]:
    values = {"enabled": True, "after": "5s", "interval": "1s"}
    budgets = [{"labels": {"app": "capped"}, "maxPods": 1}]
    with configured(elastic_lab, returnHome=values, maxSuperPods={"budgets": budgets}):
        yield


@pytest.fixture
def place(elastic_lab: Lab, returning: None) -> Iterator[Place]:
    name = f"room-{secrets.token_hex(4)}"
    lab, label = elastic_lab, {"test.lab/room": name}
    node = cloud_node(name, "", label)
    node["spec"]["unschedulable"] = True
    lab.client.create(NODES, node)
    lab.client.patch(NODES, node_of(SUBNET), {"metadata": {"labels": label}})
    try:
        yield Place(Shop(lab), name, {"nodeSelector": label})
    finally:
        lab.client.patch(NODES, node_of(SUBNET), {"metadata": {"labels": {"test.lab/room": None}}})
        lab.client.delete(NODES, name)


def returned(shop: Shop) -> set[str]:
    """The names of the pods that were evicted."""
    return {each["involvedObject"]["name"] for each in events(shop.lab, shop.namespace, "ReturnsHome")}


@pytest.mark.promise
def test_pods_return_one_after_the_other_also_when_the_leader_dies_in_between(place: Place) -> None:
    shop = place.shop
    shop.deploy("web", 3, place.pods())
    shop.create(STATEFUL_SETS, workload("StatefulSet", "db", place.pods(), replicas=2, serviceName="db"))
    shop.deploy("beyond", 2, place.pods(keeping(1)))
    budget = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
    shop.create(
        BUDGETS,
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web"},
            "spec": budget,
        },
    )
    shop.settle("web", 3)
    shop.settle("db", 2, STATEFUL_SETS)
    shop.settle("beyond", 2)
    gone = shop.away("web") | shop.away("db")
    assert len(gone) == 5
    assert shop.home() == set()

    place.open()
    shop.wait(lambda: returned(shop), "a first pod to return")
    shop.lab.kubectl(
        "delete", "pod", "-n", "drawbridge", "-l", "app.kubernetes.io/component=controllers", "--force"
    )
    shop.wait(lambda: len(shop.home("web")) == 3 and len(shop.home("db")) == 2, "all of them to return")

    shop.settle("web", 3)
    shop.settle("db", 2, STATEFUL_SETS)
    shop.wait(lambda: len(shop.home("beyond")) == 1, "one of two, which keeps one local, to return")
    shop.settle("beyond", 2)
    assert len(shop.away("beyond")) == 1
    assert {each for each in returned(shop) if each.startswith("web")} <= gone
