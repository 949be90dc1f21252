"""What comes in the middle of a rollout: the end of the resource or of a node, another template, or a pause."""

from __future__ import annotations

from tests.cluster.ingress_daemonset import (
    BINDINGS,
    CONFIRMED,
    DAEMONSETS,
    ROLES,
    Raw,
    awaiting,
    by_node,
    detaching,
    on_node,
)
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.ingress_daemonset_history import DEPLOYMENTS
from tests.cluster.ingress_daemonset_promise import Annotated

AWAITED = detaching(1, **by_node(0), **awaiting(0))


def it_is_deleted_in_the_foreground(edge: Edge) -> None:
    stop_in_the_middle(edge)
    edge.annotate_node("a", team="edge")
    edge.lab.kubectl("delete", "ids", "web", "-n", edge.namespace, "--cascade=foreground", "--timeout=90s")

    assert edge.is_gone()
    assert not any(left_behind(edge)[:-1])
    assert edge.annotations("a") == {"team": "edge"}
    assert edge.complaints(edge.promise(1, node=on_node(0))) == []


def stop_in_the_middle(edge: Edge) -> None:
    """One node is detached, and never confirmed."""
    edge.create(rolling=AWAITED, healthCheckNodePorts=[10080])
    edge.settle("a", "b")
    edge.retemplate("proxy:2")
    edge.wait(lambda: edge.detached() == {"a"}, "a node to be detached")


def left_behind(edge: Edge) -> list[list[Raw]]:
    """Of Deployments and what is beside them, and of pods."""
    kinds = (DEPLOYMENTS, DAEMONSETS, ROLES, BINDINGS)
    return [*(edge.client.list(each, edge.namespace).items for each in kinds), edge.pods()]


def a_node_goes_in_the_middle_of_its_update(edge: Edge) -> None:
    edge.create(rolling=AWAITED)
    edge.settle("a", "b", "c")
    edge.retemplate("proxy:2")
    edge.wait(lambda: edge.detached() == {"a"}, "the first node to be detached")
    edge.leave("a")
    for name in ("b", "c"):
        edge.wait(lambda: edge.detached() == {name}, f"{name} to be detached")  # noqa: B023
        edge.confirm(name)
    edge.settle("b", "c", image="proxy:2")

    edge.join("a")
    edge.settle("a", "b", "c", image="proxy:2")
    promise = edge.promise(1, node=on_node(0), timestamp=Annotated(CONFIRMED))
    assert edge.complaints(promise) == []
