"""What the API server makes of a template is the baseline; what another writer makes of it is restored, or said."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from api.ingress_daemonset import TEMPLATE_HASH
from controllers.ingress_daemonset.drift import baseline_of
from kube.errors import Invalid
from kube.resources import DEPLOYMENTS
from tests.cluster.ingress_daemonset import DAEMONSETS, Raw, by_node, detaching
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.ingress_daemonset_scenarios import Scenario, title

ROLLING = detaching(1, **by_node(1))
QUIET = 10.0
"""Seconds in which nothing is written, when nothing is to be done."""


def versions(edge: Edge) -> dict[str, Any]:
    """Of what is written by others than those who report on a status: generations and baselines."""
    held = [
        *edge.client.list(DEPLOYMENTS, edge.namespace).items,
        *edge.client.list(DAEMONSETS, edge.namespace).items,
    ]
    return {
        each["metadata"]["name"]: (
            each["metadata"]["generation"],
            baseline_of(each["metadata"]["annotations"]),
        )
        for each in held
    }


def is_recorded(edge: Edge, known: int = 2) -> bool:
    """Whether at least *known* objects are there, and all have a baseline with a digest."""
    found = [baseline for _, baseline in versions(edge).values()]
    return len(found) >= known and all(each is not None and each.digest for each in found)


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


def a_change_that_comes_back_is_said_and_left(edge: Edge) -> None:
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


def an_unknown_field_is_refused_with_its_path(edge: Edge) -> None:
    for pod, path in (
        (
            {"terminationGracePeriodSecond": 5},
            "spec.template.spec.terminationGracePeriodSecond: unknown field",
        ),
        ({"hostPID": "yes"}, "spec.template.spec.hostPID: the API server takes boolean here, not string"),
    ):
        with pytest.raises(Invalid, match=path):
            edge.create(pod=pod)
    edge.create(pod=WHOLE)
    edge.wait(lambda: edge.deployments().keys() == {"a"}, "a Deployment of a template with many fields")


WHOLE: Raw = {
    "terminationGracePeriodSeconds": 5,
    "hostUsers": True,
    "securityContext": {"sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "volumes": [
        {"name": "config", "projected": {"sources": [{"configMap": {"name": "web", "optional": True}}]}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        {
            "name": "claim",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": 1}}}
                }
            },
        },
    ],
}
"""Fields of many kinds, which every API server knows."""


SCENARIOS: dict[Scenario, tuple[str, ...]] = {
    a_change_that_comes_back_is_said_and_left: tuple("ab"),
    an_unknown_field_is_refused_with_its_path: tuple("a"),
}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=title)
def test_in_the_lab(played: Callable[[Scenario], None], scenario: Scenario) -> None:
    played(scenario)
