"""What `drawbridge simulate rollout` foresees is the order in which the leader takes the nodes."""

from __future__ import annotations

from typing import Any

from dev.lab.session import Lab
from tests.cluster.ingress_daemonset import by_node, detaching
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.test_cli import shown

NODES = "abcde"


def foreseen(edge: Edge, *arguments: str) -> list[set[str]]:
    found: dict[str, Any] = shown(edge.lab, "simulate", "rollout", "web", "-n", edge.namespace, *arguments)
    return [{edge.short(turn["node"]) for turn in wave["turns"]} for wave in found["waves"]]


def test_nodes_are_taken_in_the_order_that_was_foreseen(edge_lab: Lab) -> None:
    edge = Edge(edge_lab, *NODES)
    edge.create(rolling=detaching(2, **by_node(3, value="true")))
    edge.settle(*NODES)
    edge.patch_node("a", spec={"unschedulable": True})
    edge.wait(lambda: edge.node("a")["spec"].get("unschedulable"), "the node to be cordoned")

    waves = foreseen(edge, "--image", "proxy:2")
    edge.retemplate("proxy:2")
    edge.settle(*NODES, image="proxy:2")

    taken = sorted(NODES, key=edge.updated_at)
    for wave in waves:
        assert set(taken[: len(wave)]) == wave
        taken = taken[len(wave) :]
