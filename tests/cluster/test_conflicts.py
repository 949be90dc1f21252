"""After a conflict with another write, Drawbridge reads the object again, with its permissions, and goes on."""

from __future__ import annotations

from lab.session import Lab
from tests.cluster import workloads
from tests.cluster.anycast import Fleet
from tests.cluster.conflicts import conflicting
from tests.cluster.elasticity import Shop, keeping, template
from tests.cluster.ingress_daemonset import by_node, detaching
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.ingress_daemonset_history import Record


def test_an_address_is_reserved_despite_a_conflict_on_its_segment(lab: Lab, group: str, redis: str) -> None:
    pods = [workloads.running_pod(lab, redis, f"p{n}") for n in range(4)]
    with conflicting(lab, by="webhook", ipreservations="CREATE"):
        for pod in pods:
            lab.client.delete(workloads.PODS, pod.metadata.name, redis)
    with conflicting(lab, by="controllers", ipreservations="CREATE"):
        for _ in range(3):
            workloads.settle(lab, group)

    assert {pod.metadata.uid for pod in pods} <= workloads.records(lab, group).keys()


def test_a_pod_is_placed_despite_a_conflict_on_the_pod(elastic_lab: Lab) -> None:
    shop = Shop(elastic_lab)
    with conflicting(elastic_lab, pods="UPDATE"):
        shop.deploy("web", 3, template(keeping(1)))
        shop.settle("web", 3)

    assert (len(shop.home()), len(shop.away())) == (1, 2)


def test_a_node_gets_its_address_despite_a_conflict_on_its_address_claim(fleet: Fleet) -> None:
    with conflicting(fleet.lab, configmaps="UPDATE"):
        fleet.join("a")
        fleet.await_open("a")

    assert [each["status"] for each in fleet.on("a")] == ["BIND"]
    assert len(fleet.ordered_for("a")) == 1


def test_a_rollout_completes_despite_a_conflict_on_each_object(edge_lab: Lab, record: Record) -> None:
    edge = Edge(edge_lab, record, "a", "b")
    kinds = ("deployments", "daemonsets", "rolebindings")
    with conflicting(edge_lab, ingressdaemonsets="UPDATE", nodes="UPDATE", **dict.fromkeys(kinds, "CREATE")):
        edge.create(healthCheckNodePorts=[10091], rolling=detaching(1, **by_node(1)))
        edge.settle("a", "b")
        edge.retemplate("proxy:2")
        edge.settle("a", "b", image="proxy:2")
