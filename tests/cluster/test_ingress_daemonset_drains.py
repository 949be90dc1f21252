"""kubectl drain, on a real control plane: the load balancer hears of it before the first pod is evicted."""

from __future__ import annotations

from lab.session import Lab
from tests.cluster.ingress_daemonset import confirmed, detaching
from tests.cluster.ingress_daemonset_answers import complaints
from tests.cluster.ingress_daemonset_checkers import asking, await_all, checking, gone_at
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.ingress_daemonset_history import Record

NODES = ("a", "b")
PORT, GRACE = 10086, 5


def test_a_drain_waits_until_the_node_is_off_the_load_balancer_and_gives_it_back(
    edge_lab: Lab, record: Record
) -> None:
    edge = Edge(edge_lab, record, *NODES)
    edge.create(healthCheckNodePorts=[PORT], rolling=detaching(1, **confirmed(GRACE)), drainTimeoutSeconds=60)
    edge.settle(*NODES)
    before = {each["metadata"]["uid"] for each in edge.pods("a")}
    with checking(edge, NODES) as checkers:
        asked = list(checkers.values())
        await_all(edge_lab, asked, 200)
        with asking(edge_lab, asked):
            drained = edge_lab.kubectl(
                "drain", edge.node_name("a"), "--ignore-daemonsets", "--force", "--timeout=120s"
            )
            assert "keeps running until node" in drained.stdout + drained.stderr
            assert not before & {each["metadata"]["uid"] for each in edge.pods("a")}
            assert edge.waiting_for()["a"] == "Draining"
            assert edge.await_event("NodesDraining")

            edge_lab.kubectl("uncordon", edge.node_name("a"))
            # So long ago that nothing holds it back.
            edge.patch_deployment("a", {"metadata": {"annotations": {REQUESTED: "2026-01-01T00:00:00Z"}}})
            edge.settle(*NODES)

    off = next(each for each in checkers["a"].answers if each.status == 503)
    assert (gone_at(edge, "a") - off.at).total_seconds() >= GRACE - 1
    assert {each.status for each in checkers["b"].answers} == {200}
    answers = {edge.node_name(node): each.answers for node, each in checkers.items()}
    assert complaints(edge.history(), answers, GRACE) == []


REQUESTED = "drawbridge.io/drain-requested"


def test_nothing_keeps_a_drain_from_its_end(edge_lab: Lab, record: Record) -> None:
    """No health checker runs there, so that nothing is ever confirmed."""
    edge = Edge(edge_lab, record, "a")
    rolling = detaching(1, **confirmed(1))
    edge.create(healthCheckNodePorts=[PORT + 1], rolling=rolling, drainTimeoutSeconds=10)
    edge.settle("a")
    before = {each["metadata"]["uid"] for each in edge.pods("a")}
    edge_lab.kubectl("drain", edge.node_name("a"), "--ignore-daemonsets", "--force", "--timeout=120s")

    assert not before & {each["metadata"]["uid"] for each in edge.pods("a")}
    assert "its detachment is not confirmed" in edge.why("a")
