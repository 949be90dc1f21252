"""What cannot be meant of an IngressDaemonSet is named by its field, with the way out."""

from __future__ import annotations

import re
from typing import Any

import pytest

import healthchecker
from tests.ingress_daemonset import Raw, raw
from webhook.ingress_daemonset.types import ON_OUTAGE, HealthChecker, resource
from webhook.ingress_daemonset.validate import LONGEST_OUTAGE, SHORTEST_OUTAGE, problems, warnings

ROLLING = "spec.updateStrategy.rollingUpdate"
POD = "spec.template.spec"
CONTAINER = {"name": "web", "image": "nginx"}


def rolling(**fields: Any) -> Raw:
    return {"updateStrategy": {"rollingUpdate": fields}}


def pod(**fields: Any) -> Raw:
    return {"template": {"spec": fields}}


def labelled(**labels: str) -> Raw:
    return {"template": {"metadata": {"labels": labels}}}


def host_port(port: int, protocol: str = "TCP") -> Raw:
    return {**CONTAINER, "ports": [{"containerPort": 80, "hostPort": port, "protocol": protocol}]}


NODE = {"key": "example.com/detached"}


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        ({"podsPerNode": 0}, "spec.podsPerNode", "write 1 or more"),
        ({"podsPerNode": -1}, "spec.podsPerNode", "it is -1"),
        ({"minReadySeconds": -1}, "spec.minReadySeconds", "0 or more"),
        (
            {"minReadySeconds": 60, "progressDeadlineSeconds": 60},
            "spec.progressDeadlineSeconds",
            r"more than minReadySeconds \(60\)",
        ),
        ({"healthCheckNodePorts": [65536]}, "spec.healthCheckNodePorts[0]", "no port"),
        ({"healthCheckNodePorts": [8, 8]}, "spec.healthCheckNodePorts[1]", "twice"),
        (rolling(confirm="maybe"), "R.confirm", "'maybe' is not known; write required, preferred, off"),
        (rolling(confirmTimeoutSeconds=-1), "R.confirmTimeoutSeconds", "it is -1"),
        ({"drainTimeoutSeconds": -1}, "spec.drainTimeoutSeconds", "it is -1"),
        (
            {"healthChecker": {"onApiServerOutage": "open"}},
            "spec.healthChecker.onApiServerOutage",
            "'open' is not known; write keep or fail",
        ),
        (
            {"healthChecker": {"outageToleranceSeconds": 5}},
            "spec.healthChecker.outageToleranceSeconds",
            "it is 5; write a number from 6 to 3600",
        ),
        (
            {"updateStrategy": {"type": "OnDelete"}},
            "spec.updateStrategy.type",
            "'OnDelete' is not known; write RollingUpdate",
        ),
        (rolling(maxUnavailableNodes="two"), "R.maxUnavailableNodes", "'two' is no budget"),
        (rolling(maxUnavailableNodes="101%"), "R.maxUnavailableNodes", "'101%'"),
        (rolling(maxDegradedNodes="2"), "R.maxDegradedNodes", "whole number"),
        (rolling(maxDegradedNodes=-1), "R.maxDegradedNodes", "-1"),
        (rolling(maxSurgedPodsPerNode="-5%"), "R.maxSurgedPodsPerNode", "'-5%'"),
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
            rolling(maxUnavailableNodes=1, annotateNodeToDetach={"key": "a=true"}),
            "R.annotateNodeToDetach.key",
            "'a=true' is not the key",
        ),
        (
            rolling(maxUnavailableNodes=1, annotateNodeToDetach={"key": "drawbridge.io/detached-by"}),
            "R.annotateNodeToDetach.key",
            "belongs to Drawbridge itself",
        ),
        (
            rolling(maxUnavailableNodes=1, annotateNodeToDetach=NODE | {"gracePeriodSeconds": -1}),
            "R.annotateNodeToDetach.gracePeriodSeconds",
            "0 or more seconds",
        ),
        (
            rolling(waitForDetachmentByAnnotatedTimestamp={"key": "a"}),
            "R.waitForDetachmentByAnnotatedTimestamp",
            "give annotateNodeToDetach, too",
        ),
        (
            rolling(
                maxUnavailableNodes=1,
                annotateNodeToDetach=NODE,
                waitForDetachmentByAnnotatedTimestamp={"key": "a", "format": "Unix"},
            ),
            "R.waitForDetachmentByAnnotatedTimestamp.format",
            "'Unix' is not known; write RFC3339",
        ),
        (
            rolling(
                maxUnavailableNodes=1, annotateNodeToDetach=NODE, waitForDetachmentByAnnotatedTimestamp=NODE
            ),
            "R.waitForDetachmentByAnnotatedTimestamp.key",
            "the two must differ",
        ),
        ({"selector": {"matchLabels": {"app": "other"}}}, "spec.selector.matchLabels", "lack app=other"),
        (
            labelled(**{"ingress-daemon-for-node": "a"}),
            "spec.template.metadata.labels[ingress-daemon-for-node]",
            "leave it out",
        ),
        (labelled(app="no label"), "spec.template.metadata.labels[app]", "not the value"),
        (pod(containers=[]), "P.containers", "at least one container"),
        (pod(containers=[CONTAINER, CONTAINER]), "P.containers[1].name", "used twice"),
        (pod(containers=[{"name": "web"}]), "P.containers[0].image", "missing"),
        (pod(containers=[{"image": "a"}]), "P.containers[0].name", "missing"),
        (pod(nodeName="node-1"), "P.nodeName", "leave it out"),
        (pod(restartPolicy="Never"), "P.restartPolicy", "write Always"),
        (pod(activeDeadlineSeconds=5), "P.activeDeadlineSeconds", "run for good"),
        (
            {"podsPerNode": 2, **pod(containers=[host_port(8080)])},
            "P.containers[0].ports[0].hostPort",
            "8080 can be had once on a node",
        ),
        (
            {**rolling(maxSurgedPodsPerNode=1), **pod(containers=[host_port(8080)])},
            "P.containers[0].ports[0].hostPort",
            "8080 can be had once on a node",
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
        (pod(hostNetwork="yes"), "spec.template", "hostNetwork"),
    ],
)
def test_what_cannot_be_meant_is_named(spec: Raw, field: str, said: str) -> None:
    [(path, message)] = problems(resource(raw(spec)))

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
        {"selector": {"matchLabels": {"app": "web"}}, **labelled(tier="edge")},
    ],
)
def test_what_can_be_meant_is_taken(spec: Raw) -> None:
    assert problems(resource(raw(spec))) == []


def test_a_template_without_labels_could_never_be_found_again() -> None:
    given = raw()
    del given["spec"]["template"]["metadata"]

    assert [path for path, _ in problems(resource(given))] == [
        "spec.selector.matchLabels",
        "spec.template.metadata.labels",
    ]


def test_the_selector_may_stay_and_nothing_else() -> None:
    old, new = resource(raw()), resource(raw(labelled(app="other")))

    assert problems(old, old) == []
    assert [path for path, _ in problems(new, old)] == ["spec.selector.matchLabels"]


def test_a_health_port_that_only_root_may_have_is_warned_of() -> None:
    said = list(warnings(resource(raw({"healthCheckNodePorts": [80, 1024]}))))
    assert [each for each in said if "root" in each] == [
        "healthCheckNodePort 80 needs root, and health checkers are not root; use a port from 1024 on"
    ]


def test_a_drain_that_ends_before_the_grace_is_warned_of() -> None:
    spec = rolling(maxUnavailableNodes=1, annotateDeploymentToDetach={"gracePeriodSeconds": 120})
    ports = {"healthCheckNodePorts": [10080]}

    [said] = warnings(resource(raw(spec | ports)))
    assert said == "drainTimeoutSeconds is 90: an eviction passes before the grace of 120 s is over"
    assert [*warnings(resource(raw(spec | ports | {"drainTimeoutSeconds": 180})))] == []
    assert [*warnings(resource(raw(spec | ports | {"drainTimeoutSeconds": 0})))] == []


def test_the_bounds_are_those_of_the_health_checker() -> None:
    assert (SHORTEST_OUTAGE, LONGEST_OUTAGE) == (healthchecker.SHORTEST_BOUND, healthchecker.LONGEST_BOUND)
    assert ON_OUTAGE == (healthchecker.KEEP, healthchecker.FAIL)
    assert HealthChecker().outage_tolerance_seconds == healthchecker.DEFAULT_BOUND
