"""The processes of a lab have what alerts and dashboards ask for, and give it to users with permission."""

from __future__ import annotations

import http.client
import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from dev.lab import install
from dev.lab.bootstrap import running
from dev.lab.errors import LabError
from dev.lab.session import Lab
from kube.errors import ServerError
from kube.resources import CONFIG_MAPS, PODS, VALIDATING_WEBHOOKS
from tests import monitoring
from tests.cluster import workloads
from tests.cluster.test_ingress_daemonset_health import SERIES as OF_INGRESS_DAEMONSETS
from tests.monitoring import expressions

pytestmark = pytest.mark.nightly

VALUES = {
    "replicaCount": 2,
    "elasticity": {"enabled": True, "returnHome": {"enabled": True}},
    "metrics": {"authentication": True},
}
LABELS = {"drawbridge.io/test": "unreachable"}
OF_POOLS = {
    "drawbridge_pool_addresses",
    "drawbridge_pool_assigned_addresses",
    "drawbridge_pool_free_addresses",
    "drawbridge_pool_reserved_addresses",
}
"""Of a cluster with Calico's pools, as that of test_ip_reservation_pools."""
OF_VALUES = {
    "drawbridge_elasticity_budget_in_force",
    "drawbridge_elasticity_tier_pods",
    "drawbridge_ingress_daemonset_connection_timeouts_total",
    "drawbridge_ingress_daemonset_load_balancer_failed",
    "drawbridge_ingress_daemonset_load_balancer_nodes",
    "drawbridge_ingress_daemonset_open_connections",
}
"""Of a cluster with budgets at hours, several tiers, nodes that load balancers detach, or connections."""
CONDITIONAL = (
    OF_INGRESS_DAEMONSETS
    | OF_POOLS
    | OF_VALUES
    | {
        "drawbridge_informer_undecodable_objects_total",
        "drawbridge_events_dropped_total",
        "drawbridge_config_reloads_total",
        "drawbridge_reservations_released_total",
        "drawbridge_workqueue_retries_total",
        "drawbridge_elasticity_placed_total",
        "drawbridge_elasticity_refused_total",
        "drawbridge_certificate_not_after_timestamp_seconds",
        "drawbridge_certificates_issued_total",
    }
)
"""Series that a lab does not have until something happens that their names say."""
OF_OTHERS = {
    "up",
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_webhook_rejection_count",
}
"""Prometheus' and the API server's."""


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


def scrapes(lab: Lab, token: str) -> list[tuple[int, str]]:
    """The answer of each pod."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    found = []
    for pod in lab.client.list(PODS, install.NAMESPACE).items:
        with closing(http.client.HTTPConnection(pod["status"]["podIP"], 8080, timeout=60)) as connection:
            connection.request("GET", "/metrics", headers=headers)
            answer = connection.getresponse()
            found.append((answer.status, answer.read().decode()))
    return found


def token_of_readers(lab: Lab) -> str:
    """In the Secret that the ServiceMonitor names."""
    secret = lab.client.get(install.SECRETS, "drawbridge-metrics-reader", install.NAMESPACE)
    return b64decode(secret["data"]["token"]).decode()


def test_metrics_are_for_users_with_permission(lab: Lab) -> None:
    webhook = lab.kubectl("-n", install.NAMESPACE, "create", "token", "drawbridge-webhook").stdout.strip()

    for token, status in (("", 401), (webhook, 403), (token_of_readers(lab), 200)):
        assert [found for found, _ in scrapes(lab, token)] == [status] * 4


def test_every_queried_series_exists(lab: Lab) -> None:
    asked, token = set().union(*map(monitoring.series, expressions().values())), token_of_readers(lab)
    assert asked >= CONDITIONAL

    def missing() -> set[str]:
        text = "".join(found for _, found in scrapes(lab, token))
        return asked - CONDITIONAL - OF_OTHERS - {*re.findall(r"^\w+", text, re.MULTILINE)}

    with suppress(LabError):
        lab.wait(lambda: not missing(), 60, "all of them")
    assert missing() == set()


def test_the_api_server_counts_calls_without_an_answer(lab: Lab) -> None:
    counters = (
        'apiserver_admission_webhook_fail_open_count{name="open.drawbridge.io",',
        'apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",'
        'name="closed.drawbridge.io",',
    )
    lab.client.create(VALIDATING_WEBHOOKS, unreachable())
    try:
        for counter in counters:
            lab.wait(lambda counter=counter: counter in metrics_after_another_try(lab), 30, counter)
    finally:
        lab.client.delete(VALIDATING_WEBHOOKS, "unreachable")


def unreachable() -> dict[str, Any]:
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
