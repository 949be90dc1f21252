"""What the API server makes of a template is the baseline; what another writer makes of it is restored, or said."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from api.ingress_daemonset import TEMPLATE_HASH
from controllers.ingress_daemonset.drift import baseline_of
from dev.lab.session import Lab
from kube.resources import DAEMON_SETS, DEPLOYMENTS
from tests.cluster.ingress_daemonset import Raw, by_node, detaching
from tests.cluster.ingress_daemonset_edge import Edge

ROLLING = detaching(1, **by_node(1))
QUIET = 10.0
"""Seconds in which nothing is written, when nothing is to be done."""


def versions(edge: Edge) -> dict[str, Any]:
    """Of what is written by others than those who report on a status: generations and baselines."""
    held = [
        *edge.client.list(DEPLOYMENTS, edge.namespace).items,
        *edge.client.list(DAEMON_SETS, edge.namespace).items,
    ]
    return {
        each["metadata"]["name"]: (
            each["metadata"]["generation"],
            baseline_of(each["metadata"]["annotations"]),
        )
        for each in held
    }


def is_recorded(edge: Edge) -> bool:
    """Whether at least two objects are there, and all have a baseline with a digest."""
    found = [baseline for _, baseline in versions(edge).values()]
    return len(found) >= 2 and all(each is not None and each.digest for each in found)


def assert_quiet(edge: Edge) -> None:
    edge.wait(lambda: is_recorded(edge), "the answers to be recorded")
    before, ends = versions(edge), time.monotonic() + QUIET
    while time.monotonic() < ends:
        assert edge.off() == set()
        time.sleep(0.5)
    assert versions(edge) == before


def pod_of(edge: Edge, node: str) -> Raw:
    found: Raw = edge.deployment(node)["spec"]["template"]["spec"]
    return found


@contextmanager
def mutating(edge: Edge, node: str, change: Raw) -> Iterator[None]:
    """Another writer makes a change again whenever it is gone."""
    ended = threading.Event()
    path = DEPLOYMENTS.path(edge.namespace, edge.deployment(node)["metadata"]["name"])

    def run() -> None:
        while not ended.wait(0.2):
            if not pod_of(edge, node).get("hostPID"):
                edge.client.request("PATCH", path, body=change, query={"fieldManager": "background-policy"})

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_change_that_comes_back_is_said_and_left(edge_lab: Lab) -> None:
    edge = Edge(edge_lab, "a", "b")
    edge.create(rolling=ROLLING)
    edge.settle(*"ab")
    with mutating(edge, "b", {"spec": {"template": {"spec": {"hostPID": True}}}}):
        said = edge.await_event("TemplateAltered")
        assert "spec.template.spec.hostPID" in said
        assert "'background-policy'" in said
        edge.wait(lambda: edge.reasons()["Degraded"] == "True TemplateAltered", "the status to say so")
        edge.settle(*"ab")
        edge.wait(lambda: edge.waiting_for() == {"b": "Altered"}, "the status to say which node")
        assert_quiet(edge)
    assert pod_of(edge, "b")["hostPID"] is True

    edge.patch_deployment("b", {"metadata": {"annotations": {TEMPLATE_HASH: None}}})
    edge.wait(lambda: not pod_of(edge, "b").get("hostPID"), "the template to be restored")
    edge.settle(*"ab")
    edge.wait(lambda: edge.reasons()["Degraded"] == "False AsDesired", "the status to say so")
    assert_quiet(edge)
