"""What happens to IngressDaemonSets, in scenarios that run all at once: most of their time they wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from dev.lab.policy.mutations import pod_without_policy, without_policy
from dev.lab.session import Lab
from dev.lab.waiting import at_most
from kube.resources import DEPLOYMENTS
from tests.cluster import workloads
from tests.cluster.elasticity import ACCOUNTS
from tests.cluster.ingress_daemonset import (
    BINDINGS,
    DAEMONSETS,
    NODE_LABEL,
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
    kinds = (DEPLOYMENTS, DAEMONSETS, BINDINGS)
    return [*(edge.client.list(each, edge.namespace).items for each in kinds), edge.pods()]


Scenario = Callable[[Edge], None]


@contextmanager
def playing(lab: Lab, scenarios: Mapping[Scenario, Sequence[str]]) -> Iterator[Callable[[Scenario], None]]:
    """Each on nodes of these names; what it gives waits for the end of one, and raises what that raised."""
    with ThreadPoolExecutor(len(scenarios)) as pool:
        played = {scenario: pool.submit(_play, lab, scenario, nodes) for scenario, nodes in scenarios.items()}
        yield lambda scenario: played[scenario].result()


def _play(lab: Lab, scenario: Scenario, nodes: Sequence[str]) -> None:
    scenario(Edge(lab, *nodes))


def title(scenario: Scenario) -> str:
    return scenario.__name__.replace("_", " ")


LONG = "a-node-with-a-name-that-is-much-too-long-for-a-label-or-a-deployment"


def an_unmanaged_deployment_is_left_alone_and_the_other_nodes_go_on(edge: Edge) -> None:
    name = f"web-{edge.node_name('b')}"
    theirs = workloads.pod_template({"app": "theirs"})
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "theirs"}}, "template": theirs}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
    edge.client.create(DEPLOYMENTS, body, edge.namespace)
    edge.create(rolling=detaching(1))
    edge.settle("a", "c")
    edge.retemplate("proxy:2")
    edge.settle("a", "c", image="proxy:2")

    assert name in edge.await_event("ForeignDeployment")
    edge.wait(lambda: edge.reasons().get("Degraded") == "True ForeignDeployment", "the status to say so")
    edge.wait(lambda: edge.waiting_for() == {"b": "Foreign"}, "the status to name the node")
    found = without_policy(edge.deployment("b"))
    assert (found["metadata"]["generation"], found["spec"]["template"]["metadata"]) == (1, theirs["metadata"])
    assert "ownerReferences" not in found["metadata"]

    edge.client.delete(DEPLOYMENTS, name, edge.namespace)
    edge.settle("a", "b", "c", image="proxy:2")


def names_that_are_too_long_are_distinguished(edge: Edge) -> None:
    name = "w" * 60
    nodes = [f"{LONG}-{each}" for each in ("one", "two")]
    for each in nodes:
        edge.join(each)
    edge.create(name, rolling=detaching(2), healthCheckNodePorts=[10080])
    edge.settle(*nodes, name=name)

    held = edge.deployments(name)
    names = {each["metadata"]["name"] for each in held.values()}
    labels = {each["metadata"]["labels"][NODE_LABEL] for each in held.values()}
    assert (len(names), len(labels)) == (2, 2)
    assert {len(each) for each in names | labels} == {63}
    assert {len(edge.pods(each, name)) for each in nodes} == {2}
    [daemon_set] = edge.client.list(DAEMONSETS, edge.namespace).items
    assert len(daemon_set["metadata"]["name"]) == 63

    edge.retemplate("proxy:2", name)
    edge.settle(*nodes, name=name, image="proxy:2")
    assert {each["metadata"]["name"] for each in edge.deployments(name).values()} == names


def pods_that_share_the_ports_of_their_node_list_none_and_are_probed_by_number(edge: Edge) -> None:
    asks = {"httpGet": {"path": "/", "port": "web"}}
    container = {
        "name": "proxy",
        "image": "proxy:1",
        "ports": [{"name": "web", "containerPort": 8080}, {"name": "admin", "containerPort": 9901}],
        "readinessProbe": asks,
        "livenessProbe": {"tcpSocket": {"port": "admin"}},
        "startupProbe": {"httpGet": {"path": "/", "port": 8080}},
        "lifecycle": {"preStop": {"httpGet": {"path": "/quit", "port": "admin"}}},
    }
    side = {"name": "side", "image": "side:1", "restartPolicy": "Always", "ports": [{"containerPort": 7000}]}
    pod = {"hostNetwork": True, "containers": [container], "initContainers": [side]}
    edge.create(pod=pod, rolling=detaching(1))
    edge.settle("a", "b")

    pods = edge.pods()
    assert len(pods) == 4
    for spec in (pod_without_policy(each["spec"]) for each in pods):
        [proxy] = spec["containers"]
        assert spec["hostNetwork"]
        assert [each.get("ports") for each in (proxy, *spec["initContainers"])] == [None, None]
        assert proxy["readinessProbe"]["httpGet"]["port"] == 8080
        assert proxy["livenessProbe"]["tcpSocket"]["port"] == 9901
        assert proxy["startupProbe"]["httpGet"]["port"] == 8080
        assert proxy["lifecycle"]["preStop"]["httpGet"]["port"] == 9901

    edge.change(podsPerNode=1)
    edge.wait(
        lambda: [host_ports(each) for each in edge.pods()] == [{8080, 9901, 7000}] * 2, "ports to be listed"
    )
    edge.settle("a", "b", pods=1)
    assert {each["spec"]["strategy"]["type"] for each in edge.deployments().values()} == {"Recreate"}


def host_ports(pod: Raw) -> set[int]:
    containers = (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))
    return {port["hostPort"] for each in containers for port in each.get("ports", ())}


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
    [daemon_set] = edge.client.list(DAEMONSETS, edge.namespace).items
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


SCENARIOS: dict[Scenario, tuple[str, ...]] = {
    the_example_of_the_original_is_kept_as_it_is_written: ("a", "b"),
    an_unmanaged_deployment_is_left_alone_and_the_other_nodes_go_on: ("a", "b", "c"),
    names_that_are_too_long_are_distinguished: (),
    pods_that_share_the_ports_of_their_node_list_none_and_are_probed_by_number: ("a", "b"),
    it_is_deleted_in_the_foreground: ("a", "b"),
}
"""With the nodes on which each is played."""
