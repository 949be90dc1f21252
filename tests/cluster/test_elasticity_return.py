"""Pods return from super nodes when local nodes have room again, and some stay: on a real control plane."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from kube.client import Resource
from lab.nodes import NODES, cloud_node
from lab.session import Lab
from tests.cluster.elasticity import (
    EVENTS,
    JOBS,
    SUBNET,
    Raw,
    Shop,
    configured,
    keeping,
    template,
    workload,
)
from tests.cluster.elasticity_subnets import node_of
from tests.cluster.workloads import PODS, STATEFULSETS

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets")
REPLICA_SETS = Resource("apps", "v1", "replicasets")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
ROLLOUTS = Resource("argoproj.io", "v1alpha1", "rollouts")
CLONE_SETS = Resource("apps.kruise.io", "v1alpha1", "clonesets")
KINDS = {ROLLOUTS: "Rollout", CLONE_SETS: "CloneSet"}


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
    found = shop.client.list(EVENTS, shop.namespace, field_selector="reason=ReturnsHome").items
    return {event["involvedObject"]["name"] for event in found}


@pytest.mark.promise
def test_pods_return_one_after_the_other_also_when_the_leader_dies_in_between(place: Place) -> None:
    shop = place.shop
    shop.deploy("web", 3, place.pods())
    shop.create(STATEFULSETS, workload("StatefulSet", "db", place.pods(), replicas=2, serviceName="db"))
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
    shop.settle("db", 2, STATEFULSETS)
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
    shop.settle("db", 2, STATEFULSETS)
    shop.wait(lambda: len(shop.home("beyond")) == 1, "one of two, which keeps one local, to return")
    shop.settle("beyond", 2)
    assert len(shop.away("beyond")) == 1
    assert {each for each in returned(shop) if each.startswith("web")} <= gone


def test_what_drawbridge_knows_to_be_available_returns_and_all_else_stays(place: Place) -> None:
    """Argo Rollouts make ReplicaSets, OpenKruise makes pods, and the work of a Job would be lost."""
    shop = place.shop
    for each in KINDS:
        define(shop, each)
    rollout, clones = (own(shop, each) for each in KINDS)
    canary = workload("ReplicaSet", "canary", place.pods(), replicas=2)
    canary["metadata"]["ownerReferences"] = [rollout]
    shop.create(REPLICA_SETS, canary)
    for number in range(2):
        pod = place.pods()
        metadata = {**pod["metadata"], "name": f"clone-{number}", "ownerReferences": [clones]}
        shop.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": metadata})
    job = place.pods(restartPolicy="Never")
    shop.create(
        JOBS,
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": {"template": job}},
    )
    shop.wait(lambda: len(shop.away()) == 5, "all to run on the super node")
    stay = {"clone-0", "clone-1"}
    assert stay <= shop.away()

    place.open()
    shop.wait(lambda: len(shop.home("canary")) == 2, "the pods of the Rollout to return")

    assert stay <= shop.away()
    assert all(name.startswith("canary-") for name in returned(shop))


def define(shop: Shop, resource: Resource) -> None:
    kind, name = KINDS[resource], f"{resource.plural}.{resource.group}"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": resource.version, "served": True, "storage": True, "schema": schema}
    names = {"kind": kind, "plural": resource.plural}
    spec = {"group": resource.group, "names": names, "scope": "Namespaced", "versions": [version]}
    body = {
        "apiVersion": CRDS.api_version,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": spec,
    }
    shop.client.create(CRDS, body)
    shop.wait(lambda: shop.client.serves(resource), f"{name} to be served")


def own(shop: Shop, resource: Resource) -> Raw:
    """An object of that kind, as the controller of others."""
    kind = KINDS[resource]
    body = {"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": "edge"}}
    made = shop.client.create(resource, body, shop.namespace)
    uid = made["metadata"]["uid"]
    return {"apiVersion": resource.api_version, "kind": kind, "name": "edge", "uid": uid, "controller": True}
