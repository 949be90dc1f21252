"""A real Prometheus finds in the processes of a lab what alerts and dashboards ask for."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from dev.lab.bootstrap import running
from dev.lab.errors import LabError
from dev.lab.session import Lab
from kube.client import Resource
from kube.errors import ServerError
from kube.resources import CONFIG_MAPS, PODS
from tests import monitoring
from tests.cluster import prometheus, workloads
from tests.cluster.prometheus import CONDITIONAL, Prometheus
from tests.monitoring import expressions

pytestmark = pytest.mark.nightly

VALUES = {
    "replicaCount": 2,
    "elasticity": {"enabled": True, "returnHome": {"enabled": True}},
    "metrics": {"authentication": True},
}
LABELS = {"drawbridge.io/test": "unreachable"}
CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """All features, each of which has had something to do."""
    with running(values=VALUES, nodes=2, kwok_nodes=1, cloud={}) as up:
        namespace = workloads.reserved_namespace(up.client, "seen")
        pod = workloads.running_pod(up, namespace, "redis-0")
        up.client.delete(PODS, pod.metadata.name, namespace)
        up.wait(
            lambda: pod.metadata.uid in workloads.records(up, "v3"), 30, "the pod's address to be reserved"
        )
        yield up


@pytest.fixture(scope="module")
def seeing(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus.scraping(lab, tmp_path_factory.mktemp("prometheus")) as running_one:
        yield running_one


def test_all_processes_are_scraped(lab: Lab, seeing: Prometheus) -> None:
    def scraped() -> set[tuple[str, str]]:
        found = [each["metric"] for each in seeing.query('up{job="drawbridge-metrics"} == 1')]
        return {(each["container"], each["pod"]) for each in found}

    pods = {
        (pod["metadata"]["labels"]["app.kubernetes.io/component"], pod["metadata"]["name"])
        for pod in lab.client.list(PODS, "drawbridge").items
    }

    assert len(pods) == 4
    lab.wait(lambda: scraped() == pods, 60, f"Prometheus to scrape {pods}")


def test_metrics_are_for_users_with_permission(lab: Lab) -> None:
    pods = lab.client.list(PODS, "drawbridge").items
    for account, status in (("", 401), ("drawbridge-webhook", 403), ("drawbridge-metrics-reader", 200)):
        token = account and lab.kubectl("-n", "drawbridge", "create", "token", account).stdout.strip()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        for pod in pods:
            with closing(http.client.HTTPConnection(pod["status"]["podIP"], 8080, timeout=60)) as connection:
                connection.request("GET", "/metrics", headers=headers)
                assert connection.getresponse().status == status, account


def test_every_queried_series_exists(lab: Lab, seeing: Prometheus) -> None:
    asked = set().union(*map(monitoring.series, expressions().values()))
    expected = asked - CONDITIONAL
    assert asked >= CONDITIONAL

    with suppress(LabError):
        lab.wait(lambda: expected <= seeing.names(), 60, "all of them")

    assert expected - seeing.names() == set()


def test_the_api_server_counts_calls_without_an_answer(lab: Lab) -> None:
    counters = (
        'apiserver_admission_webhook_fail_open_count{name="open.drawbridge.io",',
        'apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",'
        'name="closed.drawbridge.io",',
    )
    lab.client.create(CONFIGURATIONS, unreachable())
    try:
        for counter in counters:
            lab.wait(lambda counter=counter: counter in metrics_after_another_try(lab), 30, counter)
    finally:
        lab.client.delete(CONFIGURATIONS, "unreachable")


def unreachable() -> prometheus.Object:
    """Two webhooks at an address where no server listens."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    hook = {
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule],
        "objectSelector": {"matchLabels": LABELS},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    policies = {"open": "Ignore", "closed": "Fail"}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "unreachable"},
        "webhooks": [
            {**hook, "name": f"{name}.drawbridge.io", "failurePolicy": policy}
            for name, policy in policies.items()
        ],
    }


def metrics_after_another_try(lab: Lab) -> str:
    """Of the API server; it applies a webhook configuration a moment after its creation."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "try-", "labels": LABELS}}
    with suppress(ServerError):
        lab.client.create(CONFIG_MAPS, body, "default")
    return lab.client.request("GET", "/metrics", type=bytes).decode()
