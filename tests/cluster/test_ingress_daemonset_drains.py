"""kubectl drain, on a real control plane: a node is off the load balancer before its first pod is evicted."""

from __future__ import annotations

import pytest

from api.ingress_daemonset import DRAIN_REQUESTS, EVICTABLE_NODES
from dev.lab.session import Lab
from dev.lab.waiting import at_most
from kube.errors import TooManyRequests
from kube.resources import PODS
from tests.cluster.ingress_daemonset import INGRESS_DAEMONSETS, confirmed, detaching
from tests.cluster.ingress_daemonset_checkers import asking, await_all, checking, judged_by_answers
from tests.cluster.ingress_daemonset_edge import Edge

NODES = ("a", "b")
PORT, GRACE = 10086, 5


@pytest.mark.promise
def test_a_drain_waits_until_the_node_is_off_the_load_balancer_and_gives_it_back(edge_lab: Lab) -> None:
    edge = Edge(edge_lab, *NODES)
    edge.create(healthCheckNodePorts=[PORT], rolling=detaching(1, **confirmed(GRACE)), drainTimeoutSeconds=60)
    edge.settle(*NODES)
    before = {each["metadata"]["uid"] for each in edge.pods("a")}
    with checking(edge, NODES) as checkers:
        asked = list(checkers.values())
        await_all(edge_lab, asked, 200)
        with judged_by_answers(edge, checkers) as outside, asking(edge_lab, asked):
            with pytest.raises(TooManyRequests, match="keeps running until node"):
                evict_in_a_dry_run(edge)
            assert not edge.off()
            drain(edge)
            assert not before & {each["metadata"]["uid"] for each in edge.pods("a")}
            edge.wait(lambda: edge.waiting_for().get("a") == "Draining", "the status to say so")
            assert edge.status()[EVICTABLE_NODES].keys() == {edge.node_name("a")}
            assert edge.await_event("NodesDraining")

            edge_lab.kubectl("uncordon", edge.node_name("a"))
            end_request(edge)
            edge.settle(*NODES)
            edge.wait(lambda: drains(edge) == [{}, {}], "the status to have no drain any more")
            assert outside.findings() == []

    assert {each.status for each in checkers["b"].answers} == {200}


def evict_in_a_dry_run(edge: Edge) -> None:
    name = edge.pods("a")[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = PODS.sub("eviction").path(edge.namespace, name)
    edge.client.request("POST", path, body=eviction, query={"dryRun": "All"})


def drains(edge: Edge) -> list[object]:
    """What the status has of them."""
    status = edge.status()
    return [status[DRAIN_REQUESTS], status[EVICTABLE_NODES]]


def end_request(edge: Edge) -> None:
    """As the leader does when its time is over."""
    change = {"status": {DRAIN_REQUESTS: {edge.node_name("a"): None}}}
    edge.client.patch(INGRESS_DAEMONSETS.sub("status"), "web", change, edge.namespace)


def drain(edge: Edge) -> None:
    edge.lab.kubectl("drain", edge.node_name("a"), "--ignore-daemonsets", "--force", at_most(120))
