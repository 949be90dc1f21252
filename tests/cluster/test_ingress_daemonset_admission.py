"""An IngressDaemonSet with faults is refused by the API server, which names every fault; a good one is stored whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dev.lab.install import merged
from dev.lab.session import Lab
from kube.errors import ApiError
from tests.cluster.ingress_daemonset import API_VERSION, INGRESS_DAEMONSETS, Raw
from tests.cluster.ingress_daemonset_edge import Edge

ROLLING = "spec.updateStrategy.rollingUpdate"
CONTAINER = {"name": "web", "image": "nginx"}
TIMESTAMP = "waitForDetachmentByAnnotatedTimestamp"


def resource(spec: Raw | None = None, name: str = "probe") -> Raw:
    """The smallest valid one, with *spec* over it."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}}
    body = {"apiVersion": API_VERSION, "kind": "IngressDaemonSet", "metadata": {"name": name}}
    return {**body, "spec": merged({"template": template}, spec or {})}


def rolling(**parts: Any) -> Raw:
    return {"updateStrategy": {"rollingUpdate": parts}}


def pod(**parts: Any) -> Raw:
    return {"template": {"spec": parts}}


def dry_run(lab: Lab, body: Raw, namespace: str = "default") -> Raw:
    """As the API server would store it, unknown fields refused; ApiError says why it would not."""
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    return lab.client.request("POST", INGRESS_DAEMONSETS.path(namespace), body=body, query=query)


INVALID: dict[str, tuple[Raw, tuple[str, ...]]] = {
    "no pods": ({"podsPerNode": 0}, ("spec.podsPerNode",)),
    "no time for progress": (
        {"minReadySeconds": 60, "progressDeadlineSeconds": 60},
        ("progressDeadlineSeconds must be more than minReadySeconds",),
    ),
    "ports out of range": (
        {"healthCheckNodePorts": [0, 70000]},
        ("spec.healthCheckNodePorts[0]", "spec.healthCheckNodePorts[1]"),
    ),
    "a port twice": ({"healthCheckNodePorts": [10080, 10080]}, ("spec.healthCheckNodePorts[1]",)),
    "another strategy": ({"updateStrategy": {"type": "OnDelete"}}, ("spec.updateStrategy.type", "OnDelete")),
    "a budget without a sign": (rolling(maxSurgedPodsPerNode="3"), (f"{ROLLING}.maxSurgedPodsPerNode",)),
    "no template": ({"template": None}, ("spec.template",)),
    "more labels than any node has": (
        pod(nodeSelector={f"k{number}": "v" for number in range(65)}),
        ("spec.template.spec.nodeSelector", "must have at most 64 items"),
    ),
    "no key": (
        rolling(maxUnavailableNodes=1, annotateNodeToDetach={"gracePeriodSeconds": 1}),
        (f"{ROLLING}.annotateNodeToDetach.key",),
    ),
    "a timestamp that is never written": (
        rolling(maxUnavailableNodes=1, **{TIMESTAMP: {"key": "example.com/since"}}),
        (f"{TIMESTAMP} needs annotateNodeToDetach, too",),
    ),
}
"""One of each sort: what the schema bounds, lists, enumerates, matches or requires, and what the webhook finds."""


def test_one_with_faults_is_refused_and_every_fault_is_named(
    edge_lab: Lab, subtests: pytest.Subtests
) -> None:
    for name, (spec, expected) in INVALID.items():
        with pytest.raises(ApiError) as refused:
            dry_run(edge_lab, resource(spec))

        with subtests.test(name):
            assert refused.value.status == 422
            assert [each for each in expected if each not in refused.value.message] == []


def test_a_field_that_is_not_known_is_refused(edge_lab: Lab) -> None:
    """Of the template, too, of which the CRD knows nothing."""
    with pytest.raises(ApiError, match=f'unknown field "{ROLLING}.maxUnavailableNode"'):
        dry_run(edge_lab, resource(rolling(maxUnavailableNode=1)))
    with pytest.raises(ApiError, match=r"spec\.template\.spec\.someField: unknown field"):
        dry_run(edge_lab, resource(pod(someField={"of": "tomorrow"})))


@pytest.mark.promise
def test_a_good_one_is_stored_with_all_defaults(edge_lab: Lab) -> None:
    stored = dry_run(edge_lab, resource(rolling(maxUnavailableNodes="10%")))["spec"]

    assert (stored["podsPerNode"], stored["selector"]) == (1, {"matchLabels": {"app": "web"}})
    assert stored["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {
            "maxUnavailableNodes": "10%",
            "maxDegradedNodes": 0,
            "maxUnavailablePodsPerNode": "100%",
        },
    }


def test_its_selector_stays_as_it_is(edge_lab: Lab) -> None:
    edge = Edge(edge_lab)
    edge.create()
    path = INGRESS_DAEMONSETS.path(edge.namespace, "web")
    change = {"spec": {"selector": {"matchLabels": {"app": "other"}}}}

    with pytest.raises(ApiError, match="the selector cannot be changed"):
        edge.client.request("PATCH", path, body=change, query={"dryRun": "All"})
    edge.change(template={"metadata": {"labels": {"tier": "edge"}}})
    assert edge.resource()["spec"]["selector"] == {"matchLabels": {"app": "web"}}


def test_a_health_port_is_refused_where_nodes_are_shared_and_warned_of_elsewhere(edge_lab: Lab) -> None:
    edge = Edge(edge_lab, "a")
    edge.create("first", healthCheckNodePorts=[10099])
    second = edge.manifest("second", healthCheckNodePorts=[10098, 10099])
    with pytest.raises(ApiError) as refused:
        dry_run(edge_lab, second, edge.namespace)
    taken = f"10099 is taken on node {edge.node_name('a')} by IngressDaemonSet {edge.namespace}/first"
    assert f"spec.healthCheckNodePorts[1]: {taken}" in refused.value.message

    second["spec"]["nodeSelector"] = {"tests/another": "edge"}
    applied = edge_lab.kubectl(
        "create", "-n", edge.namespace, "--dry-run=server", "-f", "-", stdin=json.dumps(second)
    )
    assert (
        f"healthCheckNodePort 10099 is also that of IngressDaemonSet {edge.namespace}/first" in applied.stderr
    )
