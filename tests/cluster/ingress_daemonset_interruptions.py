"""What comes in the middle of a rollout: the end of the resource or of a node, another template, or a pause."""

from __future__ import annotations

from tests.cluster.elasticity import ACCOUNTS
from tests.cluster.ingress_daemonset import (
    BINDINGS,
    CONFIRMED,
    DAEMONSETS,
    INGRESS_DAEMONSETS,
    MISSING_ACCOUNT,
    ROLES,
    Raw,
    awaiting,
    by_node,
    detaching,
    image_of,
    on_node,
    uids_of,
)
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.ingress_daemonset_history import DEPLOYMENTS
from tests.cluster.ingress_daemonset_promise import Annotated

AWAITED = detaching(1, **by_node(0), **awaiting(0))


def it_is_deleted_in_the_middle_of_a_rollout(edge: Edge) -> None:
    stop_in_the_middle(edge)
    edge.annotate_node("a", team="edge")
    edge.client.delete(INGRESS_DAEMONSETS, "web", edge.namespace)

    edge.wait(edge.is_gone, "the IngressDaemonSet to be gone")
    assert edge.annotations("a") == {"team": "edge"}
    edge.wait(lambda: not any(left_behind(edge)), "all that it had made to be gone")
    assert edge.complaints(edge.promise(1, node=on_node(0))) == []


def it_is_deleted_in_the_foreground(edge: Edge) -> None:
    stop_in_the_middle(edge)
    edge.lab.kubectl("delete", "ids", "web", "-n", edge.namespace, "--cascade=foreground", "--timeout=90s")

    assert edge.is_gone()
    assert not any(left_behind(edge)[:-1])
    assert edge.detached() == set()
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


def a_node_does_not_match_any_more_in_the_middle_of_its_update(edge: Edge) -> None:
    edge.create(rolling=AWAITED)
    edge.settle("a", "b")
    edge.retemplate("proxy:2")
    edge.wait(lambda: edge.detached() == {"a"}, "the first node to be detached")
    edge.label_node("a", None)
    edge.wait(lambda: edge.detached() == {"b"}, "the second one to be detached, and the first given back")
    assert edge.annotations("a") == {}
    edge.confirm("b")
    edge.settle("b", image="proxy:2")
    assert edge.complaints(edge.promise(1, node=on_node(0))) == []


def the_template_changes_again_in_the_middle(edge: Edge) -> None:
    edge.create(rolling=AWAITED)
    edge.settle("a", "b")
    kept = uids_of(edge.pods())
    edge.retemplate("proxy:2")
    edge.wait(lambda: edge.detached() == {"a"}, "the first node to be detached")
    edge.retemplate("proxy:1")
    edge.settle("a", "b")
    assert uids_of(edge.pods()) == kept

    edge.retemplate("proxy:2", serviceAccountName=MISSING_ACCOUNT)
    edge.wait(lambda: edge.detached() == {"a"}, "the first node to be detached again")
    edge.confirm("a")
    edge.wait(lambda: not edge.pods("a"), "its pods to be taken away, and no others to come")
    edge.retemplate("proxy:3", serviceAccountName="default")
    edge.await_images("a", "proxy:3", "proxy:3")
    edge.wait(lambda: edge.detached() == {"b"}, "the second node to be detached")
    edge.confirm("b")
    edge.settle("a", "b", image="proxy:3")

    assert edge.complaints(edge.promise(1, node=on_node(0))) == []


def it_is_paused_and_goes_on(edge: Edge) -> None:
    edge.create(rolling=AWAITED)
    edge.settle("a", "b")
    kept = uids_of(edge.pods())
    edge.retemplate("proxy:2")
    edge.wait(lambda: edge.detached() == {"a"}, "the first node to be detached")
    edge.change(paused=True)
    edge.wait(lambda: not edge.off(), "the first node to be given back")
    edge.wait(lambda: edge.reasons().get("Progressing") == "False Paused", "the status to say so")
    edge.await_event("RolloutPaused")
    assert uids_of(edge.pods()) == kept

    edge.change(paused=False, template={"spec": {"serviceAccountName": MISSING_ACCOUNT}})
    edge.wait(lambda: edge.detached() == {"a"}, "the first node to be detached again")
    edge.confirm("a")
    edge.wait(lambda: not edge.pods("a"), "its pods to be taken away, and no others to come")
    edge.change(paused=True)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": MISSING_ACCOUNT}}
    edge.client.create(ACCOUNTS, account, edge.namespace)
    edge.await_images("a", "proxy:2", "proxy:2")
    edge.wait(lambda: not edge.off(), "the first node to be attached, and no other to be detached")
    assert {image_of(pod) for pod in edge.pods("b")} == {"proxy:1"}

    edge.change(paused=False)
    edge.wait(lambda: edge.detached() == {"b"}, "the second node to be detached")
    edge.confirm("b")
    edge.settle("a", "b", image="proxy:2")
    assert edge.complaints(edge.promise(1, node=on_node(0))) == []
