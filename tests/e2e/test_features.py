"""One test for each feature, with real nodes and containers."""

from __future__ import annotations

from typing import Any

import pytest

from api.anycast_ip import is_tainted
from api.elasticity import PLACEMENT
from dev.lab.install import NAMESPACE
from dev.lab.waiting import at_most
from tests.cluster.anycast import Fleet
from tests.cluster.elasticity import Shop, keeping, template
from tests.cluster.ingress_daemonset import EDGE, INGRESS_DAEMONSETS, Raw, by_deployment, detaching
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.shell import shell
from tests.e2e.cluster import FIRST, SECOND, SUBNET, Cluster
from tests.pages import ROOT, Block, blocks
from tests.pages import run as read

PORT = 10080
TRIED = [
    block
    for page in ("docs/tutorial/reserve-an-ip.md", "docs/reference/ip-reservation.md")
    for block in blocks(ROOT / page)
    if block.where == "lab" and block.prints
]


def test_cert_manager_has_issued_what_the_servers_show(cluster: Cluster) -> None:
    if cluster.is_real:
        pytest.skip(
            "no registry has cert-manager's images for it: tests/cluster/test_cert_manager.py runs its programs"
        )
    cluster.kubectl("-n", NAMESPACE, "wait", "certificate", "--all", "--for=condition=Ready", at_most(60))


@pytest.mark.parametrize("block", TRIED, ids=str)
def test_the_commands_about_reserved_addresses_work(cluster: Cluster, block: Block) -> None:
    if cluster.is_real:
        pytest.skip(
            "no registry has the images of the page for it: tests/cluster/test_docs.py runs the commands"
        )
    assert block.prints in read(block, ROOT, shell(cluster))


class Registered(Fleet):
    """Nodes that are nothing but registered: the cluster's network is to have no routes to them."""

    def body(self, name: str, **how: Any) -> dict[str, Any]:
        node = super().body(name, **how)
        return {**node, "spec": {"providerID": node["spec"]["providerID"]}, "status": {}}


def test_a_node_opens_when_its_address_is_bound_and_leaves_nothing_behind(cluster: Cluster) -> None:
    fleet = Registered(cluster)
    assert is_tainted(fleet.join("a"))

    fleet.await_open("a")
    [address] = fleet.on("a")
    assert address["status"] == "BIND"

    fleet.leave_all()
    fleet.assert_nothing_is_left_behind()


def test_the_first_replica_stays_and_the_others_are_sent_to_the_super_node(cluster: Cluster) -> None:
    shop = Shop(cluster)
    deploy(shop, keeping(1))

    shop.wait(lambda: placements(shop) == ["local", "super", "super"], "three pods to be placed")
    shop.wait(lambda: len(shop.home("web")) == 1, "the first one to be bound to a local node")
    assert cluster.kubectl("get", "node", f"eklet-{SUBNET['id']}", "--output=name").stdout
    cluster.kubectl("delete", "namespace", shop.namespace, "--wait=false")


def deploy(shop: Shop, annotations: dict[str, str]) -> None:
    """Three replicas."""
    container = {"name": "app", "image": FIRST, "command": ["python", "-m", "http.server"]}
    shop.deploy("web", 3, template(annotations, containers=[container]))


def placements(shop: Shop) -> list[str]:
    return sorted(pod.metadata.annotations.get(PLACEMENT, "") for pod in shop.pods("web"))


def test_each_node_is_off_before_its_pods_are_replaced_and_back_when_they_are_there(cluster: Cluster) -> None:
    seen = off_while_updated(cluster, detaching(1, **by_deployment(5)))

    assert set().union(*seen) == {*cluster.workers}
    assert max(map(len, seen)) == 1


def test_no_node_is_off_while_its_pods_are_replaced_where_none_is_to_be_detached(cluster: Cluster) -> None:
    """The control of the test above."""
    seen = off_while_updated(cluster, {"maxDegradedNodes": 1})

    assert set().union(*seen) == set()


def off_while_updated(cluster: Cluster, rolling: Raw) -> list[set[str]]:
    """The nodes that were seen to be off at the same time, in the course of an update of all nodes."""
    nodes = cluster.workers
    edge = Edge(cluster)
    cluster.kubectl("label", "node", *nodes, f"{EDGE}={edge.token}")
    proxy = {"name": "proxy", "image": FIRST, "command": ["python", "-m", "http.server"]}
    edge.create(pod={"containers": [proxy]}, rolling=rolling, healthCheckNodePorts=[PORT])
    edge.settle(*nodes, image=FIRST)
    await_healthy(cluster, edge)

    edge.change(template={"spec": {"containers": [{**proxy, "image": SECOND}]}})
    seen: list[set[str]] = []

    def updated() -> bool:
        seen.append(edge.off())
        return edge.is_settled(*nodes, image=SECOND)

    edge.wait(updated, "all nodes to have the new template")

    await_healthy(cluster, edge)
    edge.client.delete(INGRESS_DAEMONSETS, "web", edge.namespace)
    edge.wait(edge.is_gone, "it to go")
    cluster.kubectl("label", "node", *nodes, f"{EDGE}-")
    return seen


def await_healthy(cluster: Cluster, edge: Edge) -> None:
    edge.wait(
        lambda: {cluster.status(each, PORT) for each in cluster.workers} == {"200"}, "all nodes to be healthy"
    )
