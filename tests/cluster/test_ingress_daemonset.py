"""Thirty nodes have their pods from the first to the last, whatever happens: on a real control plane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest

from dev.lab.policy.mutations import without_policy
from dev.lab.session import Lab
from dev.lab.waiting import at_most
from kube.errors import ApiError, KubeError
from kube.resources import DAEMON_SETS, DEPLOYMENTS
from tests.cluster.elasticity import ACCOUNTS
from tests.cluster.ingress_daemonset import (
    API_VERSION,
    BALANCER,
    BINDINGS,
    NODE_LABEL,
    Raw,
    awaiting,
    by_deployment,
    by_node,
    detaching,
    image_of,
    names_of,
)
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.scenes import playing, title
from tests.ingress_daemonset import EXAMPLE

NODES = tuple(f"n{number:02}" for number in range(30))
LIMIT, GRACE = 15, 2
PORT = 10080
WHOLE = {"Available": "True AllNodesServe", "Progressing": "False Complete", "Degraded": "False AsDesired"}
"""The conditions of one with which all is as it should be."""
WEIGHT_SECONDS = 1.0
"""That the cloud takes to change weights."""

Scenario = Callable[[Edge], None]
"""What happens to an IngressDaemonSet; all run at once, as most of their time they wait."""


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


def it_is_deleted_in_the_foreground(edge: Edge) -> None:
    stop_in_the_middle(edge)
    edge.annotate_node("a", team="edge")
    edge.lab.kubectl("delete", "ids", "web", "-n", edge.namespace, "--cascade=foreground", at_most(90))

    assert edge.is_gone()
    assert not any(left_behind(edge)[:-1])
    assert edge.annotations("a") == {"team": "edge"}


def stop_in_the_middle(edge: Edge) -> None:
    """One node is detached, and never confirmed."""
    edge.create(rolling=detaching(1, **by_node(0), **awaiting(0)), healthCheckNodePorts=[10080])
    edge.settle("a", "b")
    edge.retemplate("proxy:2")
    edge.wait(lambda: edge.detached() == {"a"}, "a node to be detached")


def left_behind(edge: Edge) -> list[list[Raw]]:
    """Of Deployments and what is beside them, and of pods."""
    kinds = (DEPLOYMENTS, DAEMON_SETS, BINDINGS)
    return [*(edge.client.list(each, edge.namespace).items for each in kinds), edge.pods()]


def the_example_of_the_original_is_kept_as_it_is_written(edge: Edge) -> None:
    image = "quay.io/kubernetes-ingress-controller/nginx-ingress-controller"
    name = "nginx-ingress-serviceaccount"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    edge.client.create(ACCOUNTS, account, edge.namespace)
    mark(edge, "true")
    applied = edge.lab.kubectl("apply", "-n", edge.namespace, "-f", str(EXAMPLE))
    for warning in (
        "maxDegradedNodes is 0, not 3",
        "maxUnavailablePodsPerNode is 100%, not 3",
        "another program",
    ):
        assert warning in applied.stderr
    edge.settle("a", "b", name="ingress-nginx", image=f"{image}:0.26.1")
    generation = edge.resource("nginx-ingress")["metadata"]["generation"]
    edge.lab.kubectl("apply", "-n", edge.namespace, "-f", str(EXAMPLE))
    assert edge.resource("nginx-ingress")["metadata"]["generation"] == generation

    stored = edge.resource("nginx-ingress")["spec"]["updateStrategy"]["rollingUpdate"]
    assert (stored["maxUnavailablePodsPerNode"], "maxUnavaiablePodsPerNode" in stored) == ("100%", False)
    [daemon_set] = edge.client.list(DAEMON_SETS, edge.namespace).items
    assert daemon_set["metadata"]["name"] == "nginx-ingress-10080"
    assert "mumoshu" not in image_of(daemon_set["spec"]["template"])

    # Nodes that kwok plays run no health checkers that could confirm.
    unasked = {"rollingUpdate": {"confirm": "off"}}
    template = {"metadata": {"annotations": {"version": "2"}}}
    edge.change("nginx-ingress", template=template, updateStrategy=unasked)
    edge.wait(lambda: edge.detached() == {"a", "b"}, "both nodes to be detached")
    edge.confirm("a", "b")
    edge.wait(lambda: edge.versions("ingress-nginx") == ["2"] * 4, "all pods to be of the new template")
    edge.settle("a", "b", name="ingress-nginx", image=f"{image}:0.26.1")
    edge.lab.kubectl("delete", "-n", edge.namespace, "-f", str(EXAMPLE), at_most(90))
    edge.wait(lambda: not any(left_behind(edge)), "all that it had made to be gone")
    mark(edge, None)


def mark(edge: Edge, value: str | None) -> None:
    """By the label that the original's example selects nodes by."""
    for each in ("a", "b"):
        edge.patch_node(each, metadata={"labels": {"ingress-controller-node": value}})


def weights_are_0_before_pods_are_replaced_and_return(edge: Edge) -> None:
    cloud, grace = edge.lab.cloud, 2
    instances = {name: f"ins-{edge.token}{name}" for name in "abc"}
    for name, instance in instances.items():
        edge.patch_node(name, spec={"providerID": f"qcloud:///200001/{instance}"})
    targets = [{"listener": "lbl-1", "instance": each, "port": 443} for each in instances.values()]
    cloud.put_load_balancer(BALANCER, *targets)
    foreign = {"setWeightToDetach": {"loadBalancers": ["lb-foreign0"]}}
    with pytest.raises(ApiError, match="lb-foreign0 is not for namespace"):
        edge.create(rolling=detaching(1, **foreign))

    weights = {"setWeightToDetach": {"loadBalancers": [BALANCER], "gracePeriodSeconds": grace}}
    edge.create(rolling=detaching(1, **weights))
    edge.settle(*"abc")
    edge.retemplate("proxy:2")
    edge.settle(*"abc", image="proxy:2")
    assert {*cloud.weights(BALANCER).values()} == {10}
    written = [each for each in cloud.calls() if each.action == "BatchModifyTargetWeight"]
    for name, instance in instances.items():
        off_at = next(each.at for each in written if weight_in(each.params, instance) == 0)
        assert edge.updated_at(name).timestamp() >= int(off_at + WEIGHT_SECONDS + grace)


def weight_in(params: Raw, instance: str) -> int | None:
    """What a call gives to the instance; None when it is for others."""
    targets = [target for rule in params["ModifyList"] for target in rule["Targets"]]
    return next((each["Weight"] for each in targets if each["InstanceId"] == instance), None)


SCENARIOS: dict[Scenario, tuple[str, ...]] = {
    the_example_of_the_original_is_kept_as_it_is_written: ("a", "b"),
    weights_are_0_before_pods_are_replaced_and_return: ("a", "b", "c"),
    it_is_deleted_in_the_foreground: ("a", "b"),
}
"""With the nodes on which each is played."""


@pytest.mark.parametrize("scenario", SCENARIOS, ids=title)
def test_in_the_lab(played: Callable[[Scenario], None], scenario: Scenario) -> None:
    played(scenario)
