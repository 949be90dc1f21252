"""One test for each feature, with real nodes and containers."""

from __future__ import annotations

from typing import Any

import pytest

from lab.install import NAMESPACE
from tests.cluster import ingress_daemonset_history
from tests.cluster.anycast import Fleet
from tests.cluster.elasticity import DEPLOYMENTS, Shop, keeping, template, workload
from tests.cluster.ingress_daemonset import EDGE, INGRESS_DAEMONSETS, by_deployment, detaching
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.shell import shell
from tests.e2e.cluster import FIRST, SECOND, SUBNET, Cluster
from tests.pages import ROOT, Block, blocks
from tests.pages import run as read
from webhook.elasticity import PLACEMENT

PORT = 10080
TRIED = [
    block
    for page in ("docs/tutorial/reserve-an-ip.md", "docs/explanation/ip-reservation.md")
    for block in blocks(ROOT / page)
    if block.where == "lab" and block.prints
]


def test_cert_manager_has_issued_what_the_servers_show(cluster: Cluster) -> None:
    if cluster.is_real:
        pytest.skip(
            "no registry has cert-manager's images for it: tests/cluster/test_cert_manager.py runs its programs"
        )
    cluster.kubectl("-n", NAMESPACE, "wait", "certificate", "--all", "--for=condition=Ready", "--timeout=60s")


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
    node = fleet.join("a")
    assert node.metadata.name == fleet.name_of("a")

    fleet.await_open("a")
    [address] = fleet.on("a")
    assert address["status"] == "BIND"

    fleet.leave_all()
    fleet.assert_nothing_is_left_behind()


def test_the_first_replica_stays_and_the_others_are_sent_to_the_super_node(cluster: Cluster) -> None:
    shop = Shop(cluster)
    container = {"name": "app", "image": FIRST, "command": ["python", "-m", "http.server"]}
    replicas = template(keeping(1), containers=[container])
    shop.create(DEPLOYMENTS, workload("Deployment", "web", replicas, replicas=3))

    def placements() -> list[str]:
        return sorted(pod.metadata.annotations.get(PLACEMENT, "") for pod in shop.pods("web"))

    shop.wait(lambda: placements() == ["local", "super", "super"], "three pods to be placed")
    shop.wait(lambda: len(shop.home("web")) == 1, "the first one to be bound to a local node")
    assert cluster.kubectl("get", "node", f"eklet-{SUBNET['id']}", "--output=name").stdout
    cluster.kubectl("delete", "namespace", shop.namespace, "--wait=false")


def test_each_node_is_off_before_its_pods_are_replaced_and_back_when_they_are_there(cluster: Cluster) -> None:
    nodes = cluster.workers
    with ingress_daemonset_history.recording(cluster.client) as record:
        edge = Edge(cluster, record)
        cluster.kubectl("label", "node", *nodes, f"{EDGE}={edge.token}")
        proxy = {"name": "proxy", "image": FIRST, "command": ["python", "-m", "http.server"]}
        rolling = detaching(1, **by_deployment(5))
        edge.create(pod={"containers": [proxy]}, rolling=rolling, healthCheckNodePorts=[PORT])
        edge.settle(*nodes, image=FIRST)
        edge.wait(
            lambda: {cluster.status(each, PORT) for each in nodes} == {"200"}, "all nodes to be healthy"
        )

        edge.change(template={"spec": {"containers": [{**proxy, "image": SECOND}]}})
        seen: list[set[str]] = []

        def updated() -> bool:
            seen.append(edge.off())
            return edge.is_settled(*nodes, image=SECOND)

        edge.wait(updated, "all nodes to have the new template")

    assert set().union(*seen) == {*nodes}
    assert max(map(len, seen)) == 1
    edge.wait(
        lambda: {cluster.status(each, PORT) for each in nodes} == {"200"}, "all nodes to be healthy again"
    )
    edge.client.delete(INGRESS_DAEMONSETS, "web", edge.namespace)
    edge.wait(edge.is_gone, "it to go")
    cluster.kubectl("label", "node", *nodes, f"{EDGE}-")
