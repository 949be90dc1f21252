"""What `drawbridge simulate rollout` foresees is the order in which the leader takes the nodes."""

from __future__ import annotations

from typing import Any

from lab.session import Lab
from tests.cluster.ingress_daemonset import DETACHED, by_node, detaching, on_node
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.ingress_daemonset_history import Record, SeenNode
from tests.cluster.test_cli import shown

NODES = "abcde"


def foreseen(edge: Edge, *arguments: str) -> list[set[str]]:
    found: dict[str, Any] = shown(edge.lab, "simulate", "rollout", "web", "-n", edge.namespace, *arguments)
    return [{edge.short(turn["node"]) for turn in wave["turns"]} for wave in found["waves"]]


def detached_in_order(edge: Edge) -> list[str]:
    """Each node once."""
    seen = (each.object for each in edge.history() if isinstance(each.object, SeenNode))
    return list(dict.fromkeys(edge.short(each.name) for each in seen if DETACHED in each.annotations))


def test_nodes_are_taken_in_the_order_that_was_foreseen(edge_lab: Lab, record: Record) -> None:
    edge = Edge(edge_lab, record, *NODES)
    edge.create(rolling=detaching(2, **by_node(3, value="true")))
    edge.settle(*NODES)
    edge.patch_node("a", spec={"unschedulable": True})
    edge.wait(lambda: edge.node("a")["spec"].get("unschedulable"), "the node to be cordoned")

    waves = foreseen(edge, "--image", "proxy:2")
    edge.retemplate("proxy:2")
    edge.settle(*NODES, image="proxy:2")

    taken = detached_in_order(edge)
    assert sorted(taken) == list(NODES)
    for wave in waves:
        assert set(taken[: len(wave)]) == wave
        taken = taken[len(wave) :]
    promise = edge.promise(2, node=on_node(3))
    assert edge.violations(promise) == []
