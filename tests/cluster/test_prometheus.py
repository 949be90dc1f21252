"""A real Prometheus finds in the processes of a lab what alerts and dashboards ask for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import pytest

from kube.client import Resource
from kube.errors import ServerError
from lab.bootstrap import running
from lab.errors import LabError
from lab.session import Lab
from tests import monitoring
from tests.cluster import prometheus, workloads
from tests.cluster.prometheus import UNLESS, Prometheus
from tests.monitoring import expressions

VALUES = {"replicaCount": 2, "elasticity": {"enabled": True}}
CONFIG_MAPS = Resource("", "v1", "configmaps")
REGISTRATIONS = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """All features, each of which has had something to do."""
    with running(values=VALUES, nodes=2, kwok_nodes=1, cloud={}) as up:
        namespace = workloads.reserved_namespace(up.client, "seen")
        pod = workloads.running_pod(up, namespace, "redis-0")
        up.client.delete(workloads.PODS, pod.metadata.name, namespace)
        up.wait(
            lambda: pod.metadata.uid in workloads.records(up, "v3"), 30, "the pod's address to be reserved"
        )
        yield up


@pytest.fixture(scope="module")
def seeing(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus.scraping(lab, tmp_path_factory.mktemp("prometheus")) as running_one:
        yield running_one


def test_all_processes_are_scraped_by_what_the_chart_renders(lab: Lab, seeing: Prometheus) -> None:
    def scraped() -> set[tuple[str, str]]:
        found = [each["metric"] for each in seeing.query('up{job="drawbridge-metrics"} == 1')]
        return {(each["container"], each["pod"]) for each in found}

    pods = {
        (pod["metadata"]["labels"]["app.kubernetes.io/component"], pod["metadata"]["name"])
        for pod in lab.client.list(workloads.PODS, "drawbridge").items
    }

    assert len(pods) == 4
    lab.wait(lambda: scraped() == pods, 60, f"Prometheus to scrape {pods}")


def test_every_series_that_is_asked_for_is_there(lab: Lab, seeing: Prometheus) -> None:
    asked = set().union(*map(monitoring.series, expressions().values()))
    conditional = {name for names in UNLESS.values() for name in names}
    assert conditional <= asked

    with suppress(LabError):
        lab.wait(lambda: asked - conditional <= seeing.names(), 60, "all of them")

    assert asked - conditional - seeing.names() == set()


def test_prometheus_understands_what_every_panel_asks(lab: Lab, seeing: Prometheus) -> None:
    for text in panels().values():
        seeing.query(text)

    lab.wait(lambda: seeing.query(panels()["platform Requests A"]), 60, "the first panel to show something")


def panels() -> dict[str, str]:
    """As Grafana asks: for all that there is, over a window of its own choice."""
    return {
        name: re.sub(r"\$__rate_interval", "1m", text).replace("$namespace", ".*").replace("$name", ".*")
        for name, text in expressions().items()
        if name not in monitoring.alerts() and not text.startswith("label_values")
    }


WRONG_NOWHERE = [
    "DrawbridgeWebhookDown",
    "DrawbridgeWebhookServersMissing",
    "DrawbridgeControllersMissing",
    "DrawbridgeNoLeader",
    "DrawbridgeSeveralLeaders",
    "DrawbridgeCertificateNearExpiry",
    "DrawbridgeConfigurationRefused",
    "DrawbridgeMalformedReservation",
]
"""The alerts about which a lab's load says nothing."""


def test_a_lab_in_which_nothing_is_wrong_alarms_nobody(lab: Lab, seeing: Prometheus) -> None:
    def quiet() -> bool:
        rules = {rule["name"]: rule for rule in seeing.rules()}
        return all(rules[name]["state"] == "inactive" for name in WRONG_NOWHERE)

    def judged() -> bool:
        return all(rule["health"] == "ok" for rule in seeing.rules())

    lab.wait(lambda: seeing.query("sum(drawbridge_leader) == 1"), 60, "the leader to be seen")
    lab.wait(judged, 60, "every rule to be evaluated without an error")
    lab.wait(quiet, 60, f"none of {WRONG_NOWHERE} to be pending")


@pytest.mark.parametrize(
    "counted",
    [
        pytest.param(
            'apiserver_admission_webhook_fail_open_count{name="open.drawbridge.io",', id="failing open"
        ),
        pytest.param(
            'apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",'
            'name="closed.drawbridge.io",',
            id="failing closed",
        ),
    ],
)
def test_the_api_server_counts_what_it_could_not_ask_us(lab: Lab, counted: str) -> None:
    lab.client.create(REGISTRATIONS, nobody_answers())
    try:
        lab.wait(lambda: counted in metrics_after_another_try(lab), 30, counted)
    finally:
        lab.client.delete(REGISTRATIONS, "nobody-answers")


def nobody_answers() -> prometheus.Object:
    def hook(name: str, policy: str) -> prometheus.Object:
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["configmaps"],
        }
        return {
            "name": f"{name}.drawbridge.io",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [rule],
            "objectSelector": {"matchLabels": {"asks": "nobody"}},
            "failurePolicy": policy,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }

    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "nobody-answers"},
        "webhooks": [hook("open", "Ignore"), hook("closed", "Fail")],
    }


def metrics_after_another_try(lab: Lab) -> str:
    """Of the API server; it takes a moment until it knows of a registration."""
    metadata = {"generateName": "asks-nobody-", "labels": {"asks": "nobody"}}
    with suppress(ServerError):
        lab.client.create(
            CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}, "default"
        )
    return lab.client.request("GET", "/metrics", type=bytes).decode()
