"""What happens to IngressDaemonSets, in scenarios that run all at once: most of their time they wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dev.lab.waiting import at_most
from kube.errors import ApiError
from kube.resources import DAEMON_SETS, DEPLOYMENTS
from tests.cluster.elasticity import ACCOUNTS
from tests.cluster.ingress_daemonset import (
    BALANCER,
    BINDINGS,
    Raw,
    awaiting,
    by_node,
    detaching,
    image_of,
)
from tests.cluster.ingress_daemonset_edge import Edge
from tests.ingress_daemonset import EXAMPLE

AWAITED = detaching(1, **by_node(0), **awaiting(0))


def it_is_deleted_in_the_foreground(edge: Edge) -> None:
    stop_in_the_middle(edge)
    edge.annotate_node("a", team="edge")
    edge.lab.kubectl("delete", "ids", "web", "-n", edge.namespace, "--cascade=foreground", at_most(90))

    assert edge.is_gone()
    assert not any(left_behind(edge)[:-1])
    assert edge.annotations("a") == {"team": "edge"}


def stop_in_the_middle(edge: Edge) -> None:
    """One node is detached, and never confirmed."""
    edge.create(rolling=AWAITED, healthCheckNodePorts=[10080])
    edge.settle("a", "b")
    edge.retemplate("proxy:2")
    edge.wait(lambda: edge.detached() == {"a"}, "a node to be detached")


def left_behind(edge: Edge) -> list[list[Raw]]:
    """Of Deployments and what is beside them, and of pods."""
    kinds = (DEPLOYMENTS, DAEMON_SETS, BINDINGS)
    return [*(edge.client.list(each, edge.namespace).items for each in kinds), edge.pods()]


Scenario = Callable[[Edge], None]


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


WEIGHT_SECONDS = 1.0
"""That the cloud takes to change weights."""


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
