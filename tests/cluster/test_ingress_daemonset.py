"""Thirty nodes have their pods from the first to the last, whatever happens: on a real control plane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest

from dev.lab.policy.mutations import without_policy
from dev.lab.session import Lab
from kube.errors import KubeError
from kube.resources import DAEMON_SETS
from tests.cluster.ingress_daemonset import (
    API_VERSION,
    BINDINGS,
    NODE_LABEL,
    Raw,
    by_deployment,
    detaching,
    names_of,
)
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.ingress_daemonset_scenarios import SCENARIOS, Scenario
from tests.cluster.scenes import playing, title

NODES = tuple(f"n{number:02}" for number in range(30))
LIMIT, GRACE = 15, 2
PORT = 10080
WHOLE = {"Available": "True AllNodesServe", "Progressing": "False Complete", "Degraded": "False AsDesired"}
"""The conditions of one with which all is as it should be."""


@pytest.fixture(scope="module")
def played(edge_lab: Lab) -> Iterator[Callable[[Scenario], None]]:
    with playing({each: partial(_play, edge_lab, each) for each in SCENARIOS}) as end_of:
        yield end_of


def _play(lab: Lab, scenario: Scenario) -> None:
    scenario(Edge(lab, *SCENARIOS[scenario]))


@pytest.fixture(scope="module")
def thirty(edge_lab: Lab, played: Callable[[Scenario], None]) -> Edge:
    """Each test leaves it as it was."""
    edge = Edge(edge_lab, *NODES)
    edge.create(healthCheckNodePorts=[PORT], rolling=detaching(LIMIT, **by_deployment(GRACE)))
    edge.settle(*NODES)
    return edge


@pytest.mark.promise
def test_each_of_thirty_nodes_has_its_pods_and_a_health_checker_and_the_status_says_so(thirty: Edge) -> None:
    owner, pods = owner_of(thirty), thirty.pods()
    for node, found in thirty.deployments().items():
        held = without_policy(found)
        assert held["metadata"]["name"] == f"web-{thirty.node_name(node)}"
        assert held["metadata"]["labels"] == {"app": "web", NODE_LABEL: thirty.node_name(node)}
        assert held["metadata"]["ownerReferences"] == [owner]
        assert held["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": "100%", "maxSurge": 0}

    assert Counter(each["spec"]["nodeName"] for each in pods) == {thirty.node_name(node): 2 for node in NODES}
    assert {each["status"]["phase"] for each in pods} == {"Running"}
    assert [each["metadata"]["name"] for each in thirty.nodes() if ours_of(each)] == []

    counts = {
        "desiredNodes": 30,
        "updatedNodes": 30,
        "readyNodes": 30,
        "detachedNodes": 0,
        "degradedNodes": 0,
    }

    thirty.wait(lambda: thirty.reasons() == WHOLE, "its conditions to be good")
    status = thirty.status()
    assert {name: status[name] for name in counts} == counts
    assert status["waitingFor"] == []
    shown = thirty.lab.kubectl("get", "ids", "web", "-n", thirty.namespace).stdout.splitlines()
    assert shown[0].split() == ["NAME", "DESIRED", "UPDATED", "READY", "DETACHED", "AGE"]
    assert shown[1].split()[:5] == ["web", "30", "30", "30", "0"]

    def ready() -> dict[str, int]:
        found = thirty.client.list(DAEMON_SETS, thirty.namespace).items
        return {each["metadata"]["name"]: each.get("status", {}).get("numberReady", 0) for each in found}

    thirty.wait(lambda: ready() == {f"web-{PORT}": 30}, "a health checker on each node")


def test_its_health_checkers_follow_its_ports(thirty: Edge) -> None:
    for port in (PORT + 1, PORT):
        thirty.change(healthCheckNodePorts=[port])
        thirty.wait(
            lambda: child_names(thirty) == [{f"web-{port}"}, {"web-health-checker"}],  # noqa: B023
            f"the checkers of {port} alone, and their permissions, to be there",
        )


def child_names(edge: Edge) -> list[set[str]]:
    return [names_of(edge.client.list(each, edge.namespace).items) for each in (DAEMON_SETS, BINDINGS)]


def ours_of(node: Raw) -> set[str]:
    annotations = node["metadata"].get("annotations", {})
    return {each for each in annotations if each.startswith(("drawbridge.io/", "ingressdaemonsets."))}


def owner_of(edge: Edge) -> Raw:
    flags = {"controller": True, "blockOwnerDeletion": True}
    uid = edge.resource()["metadata"]["uid"]
    return {"apiVersion": API_VERSION, "kind": "IngressDaemonSet", "name": "web", "uid": uid, **flags}


def test_what_its_health_checkers_may_read_is_put_back(thirty: Edge) -> None:
    given = binding_of(thirty)
    thirty.client.patch(BINDINGS, "web-health-checker", {"subjects": []}, thirty.namespace)
    thirty.wait(lambda: binding_of(thirty).get("subjects") == given["subjects"], "the subjects to be back")

    replaced = thirty.wait(
        lambda: replaced_by_hand(thirty, {**given["roleRef"], "name": "view"}), "another role"
    )
    thirty.wait(lambda: binding_of(thirty)["roleRef"] == given["roleRef"], "the role to be back")
    assert binding_of(thirty)["metadata"]["uid"] != replaced


def binding_of(edge: Edge) -> Raw:
    """An empty one while it is replaced."""
    found = edge.client.list(BINDINGS, edge.namespace).items
    return found[0] if found else {"subjects": [], "roleRef": {}}


def replaced_by_hand(edge: Edge, role: Raw) -> str:
    """The uid of the same binding with another *role*; empty when the controllers were faster."""
    held = binding_of(edge)
    if "metadata" not in held:
        return ""
    kept = {name: held["metadata"][name] for name in ("name", "namespace", "labels", "ownerReferences")}
    with suppress(KubeError):
        edge.client.delete(BINDINGS, kept["name"], edge.namespace)
        created: Raw = edge.client.create(
            BINDINGS, held | {"metadata": kept, "roleRef": role}, edge.namespace
        )
        return str(created["metadata"]["uid"])
    return ""


@pytest.mark.parametrize("scenario", SCENARIOS, ids=title)
def test_in_the_lab(played: Callable[[Scenario], None], scenario: Scenario) -> None:
    played(scenario)
