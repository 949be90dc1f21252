"""What cannot be meant of an IngressDaemonSet is named by its field, with the way out."""

from __future__ import annotations

import re
from typing import Any

import pytest

from api.ingress_daemonset.template import EXCLUDED, template_of
from api.ingress_daemonset.types import resource
from kube.selectors import REQUIRED
from settings import IngressDaemonSetSettings
from tests.ingress_daemonset import Raw, raw
from webhook.ingress_daemonset.validate import problems, warnings

ROLLING = "spec.updateStrategy.rollingUpdate"
POD = "spec.template.spec"
CONTAINER = {"name": "web", "image": "nginx"}


def found_in(given: Raw) -> list[tuple[str, str]]:
    new = resource(given)
    return list(problems(new, template_of(new.spec)))


def warned_of(spec: Raw) -> list[str]:
    return list(warnings(resource(raw(spec)), IngressDaemonSetSettings()))


def rolling(**fields: Any) -> Raw:
    return {"updateStrategy": {"rollingUpdate": fields}}


def measured(**metric: Any) -> Raw:
    return rolling(canary={"nodes": 1, "metric": {"query": "errors", **metric}})


def windowed(**window: Any) -> Raw:
    return rolling(window={"start": "02:00", "durationSeconds": 3600, **window})


def pod(**fields: Any) -> Raw:
    return {"template": {"spec": fields}}


def labelled(**labels: str) -> Raw:
    return {"template": {"metadata": {"labels": labels}}}


def host_port(port: int, protocol: str = "TCP") -> Raw:
    return {**CONTAINER, "ports": [{"containerPort": 80, "hostPort": port, "protocol": protocol}]}


def counted(*ports: int, endpoint: Raw | None = None, **spec: Any) -> Raw:
    wait = {"ports": [*ports]} | ({"endpoint": endpoint} if endpoint else {})
    return rolling(maxUnavailableNodes=1, waitForConnections=wait) | spec


NODE = {"key": "example.com/detached"}
UP = {"port": 9113, "metric": "up"}
UNLABELLED = {
    "nodeAffinity": {
        REQUIRED: {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": EXCLUDED, "operator": "DoesNotExist"}]}]
        }
    }
}
CHECKED = {"healthCheckNodePorts": [10080], **pod(hostNetwork=True)}


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        (
            {"minReadySeconds": 60, "progressDeadlineSeconds": 60},
            "spec.progressDeadlineSeconds",
            r"more than minReadySeconds \(60\)",
        ),
        (
            {"revisionHistoryLimit": 0, **rolling(autoRollback=True)},
            "spec.revisionHistoryLimit",
            "autoRollback needs the former template",
        ),
        (rolling(canary={}), "R.canary", r"nodes, such as 1 or 10%, or nodeSelector, or both"),
        (rolling(canary={"nodes": "0%"}), "R.canary.nodes", r"it is 0%: write 1 or more, or remove canary"),
        (measured(), "R.canary.metric", "it has no bounds: write min, or max, or both"),
        (measured(query=" ", max=1), "R.canary.metric.query", "it is empty: write a query in PromQL"),
        (measured(min=2, max=1.5), "R.canary.metric.min", r"it is 2, more than max \(1\.5\)"),
        (rolling(waves={"byLabel": "a zone"}), "R.waves.byLabel", "'a zone' is not the key of a label"),
        (windowed(timeZone="Moon/Crater"), "R.window.timeZone", "such as Europe/Berlin"),
        (windowed(timeZone="../../etc/passwd"), "R.window.timeZone", "is not known"),
        (
            rolling(maxUnavailableNodes="0%", maxDegradedNodes="00%"),
            "R.maxDegradedNodes",
            "as is maxUnavailableNodes",
        ),
        (rolling(maxUnavailablePodsPerNode=0), "R.maxUnavailablePodsPerNode", "as is maxSurgedPodsPerNode"),
        (
            rolling(annotateDeploymentToDetach={"key": "/x"}),
            "R.annotateDeploymentToDetach.key",
            "'/x' is not the key",
        ),
        (
            rolling(maxUnavailableNodes=1, annotateNodeToDetach={"key": "a,b=true"}),
            "R.annotateNodeToDetach.key",
            "'a,b' is not the key",
        ),
        (
            rolling(maxUnavailableNodes=1, annotateNodeToDetach={"key": "drawbridge.io/detached-by"}),
            "R.annotateNodeToDetach.key",
            "belongs to Drawbridge itself",
        ),
        (
            rolling(
                maxUnavailableNodes=1, annotateNodeToDetach=NODE, waitForDetachmentByAnnotatedTimestamp=NODE
            ),
            "R.waitForDetachmentByAnnotatedTimestamp.key",
            "the two must differ",
        ),
        (
            {"nodeSelector": {EXCLUDED: ""}, **rolling(labelNodeToDetach=True)},
            "R.labelNodeToDetach",
            "would leave",
        ),
        (
            {**rolling(labelNodeToDetach=True), **pod(affinity=UNLABELLED)},
            "R.labelNodeToDetach",
            "would leave",
        ),
        ({"selector": {"matchLabels": {"app": "other"}}}, "spec.selector.matchLabels", "lack app=other"),
        (
            labelled(**{"ingress-daemon-for-node": "a"}),
            "spec.template.metadata.labels[ingress-daemon-for-node]",
            "leave it out",
        ),
        (labelled(app="no label"), "spec.template.metadata.labels[app]", "not the value"),
        (pod(containers=[CONTAINER, CONTAINER]), "P.containers[1].name", "used twice"),
        (pod(containers=[{"name": "web"}]), "P.containers[0].image", "missing"),
        (pod(containers=[{"image": "a"}]), "P.containers[0].name", "missing"),
        (pod(nodeName="node-1"), "P.nodeName", "leave it out"),
        (pod(restartPolicy="Never"), "P.restartPolicy", "write Always"),
        (pod(activeDeadlineSeconds=5), "P.activeDeadlineSeconds", "run for good"),
        (
            {"podsPerNode": 2, **pod(containers=[host_port(8080)])},
            "P.containers[0].ports[0].hostPort",
            "8080 can be used once per node",
        ),
        (
            {**rolling(maxSurgedPodsPerNode=1), **pod(containers=[host_port(8080)])},
            "P.containers[0].ports[0].hostPort",
            "8080 can be used once per node",
        ),
        (
            {"healthCheckNodePorts": [8080], **pod(containers=[host_port(8080)])},
            "P.containers[0].ports[0]",
            "8080 is one of healthCheckNodePorts",
        ),
        (
            {"nodeSelector": {"edge": "yes"}, **pod(nodeSelector={"edge": "no"})},
            "spec.nodeSelector[edge]",
            "no node can have both",
        ),
        ({"nodeSelector": {"a b": "c"}}, "spec.nodeSelector", "'a b' is not the key"),
        (counted(80, healthCheckNodePorts=[10080]), "R.waitForConnections", "not seen on the node"),
        (counted(80, **pod(hostNetwork=True)), "R.waitForConnections", "there are no healthCheckNodePorts"),
        (counted(**CHECKED), "R.waitForConnections", "write either ports or endpoint"),
        (counted(80, endpoint=UP, **CHECKED), "R.waitForConnections", "write either ports or endpoint"),
    ],
)
def test_what_cannot_be_meant_is_named(spec: Raw, field: str, said: str) -> None:
    [(path, message)] = found_in(raw(spec))

    assert path == field.replace("R.", f"{ROLLING}.").replace("P.", f"{POD}.")
    assert re.search(said, message)


@pytest.mark.parametrize(
    "spec",
    [
        {"podsPerNode": 2, **pod(hostNetwork=True, containers=[host_port(80)])},
        pod(containers=[host_port(8080)]),
        {"healthCheckNodePorts": [53], **pod(containers=[host_port(53, "UDP")])},
        rolling(maxUnavailablePodsPerNode=0, maxSurgedPodsPerNode="50%"),
        {"nodeSelector": {"edge": "yes"}, **pod(nodeSelector={"edge": "yes"})},
        rolling(canary={"nodes": 1}, autoRollback=True),
        rolling(canary={"nodeSelector": {"canary": "true"}, "pause": {"durationSeconds": 60}}),
        {"selector": {"matchLabels": {"app": "web"}}, **labelled(tier="edge")},
        counted(endpoint=UP, **CHECKED),
    ],
)
def test_what_can_be_meant_is_taken(spec: Raw) -> None:
    assert found_in(raw(spec)) == []


def test_a_template_without_labels_could_never_be_found_again() -> None:
    given = raw()
    del given["spec"]["template"]["metadata"]

    assert [path for path, _ in found_in(given)] == [
        "spec.selector.matchLabels",
        "spec.template.metadata.labels",
    ]


def test_a_health_port_that_only_root_may_have_is_warned_of() -> None:
    said = warned_of({"healthCheckNodePorts": [80, 1024]})
    assert [each for each in said if "root" in each] == [
        "healthCheckNodePort 80 needs root, and health checkers are not root; use a port from 1024 on"
    ]


def test_a_drain_that_ends_before_the_grace_is_warned_of() -> None:
    spec = rolling(maxUnavailableNodes=1, annotateDeploymentToDetach={"gracePeriodSeconds": 120})
    ports = {"healthCheckNodePorts": [10080]}

    [said] = warned_of(spec | ports)
    assert said == "drainTimeoutSeconds is 90: an eviction passes before the grace of 120 s is over"
    assert warned_of(spec | ports | {"drainTimeoutSeconds": 180}) == []
    assert warned_of(spec | ports | {"drainTimeoutSeconds": 0}) == []
