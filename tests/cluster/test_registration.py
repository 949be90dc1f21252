"""The API server calls the webhook for exactly those deletions that may have to wait for a reservation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from api.ip_reservation import KUBELET_REASONS
from dev.lab import chart
from dev.lab.session import Lab
from kube.client import Resource
from kube.errors import ServerError
from tests.cluster import workloads

NAMESPACE = "asked-about"
CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
)
FLOW_SCHEMAS = Resource("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", namespaced=False)
UNTOUCHED = {"schedulerName": "none"}
IP = {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}
FAILED, SUCCEEDED = IP | {"phase": "Failed"}, IP | {"phase": "Succeeded"}
NEVER = {"restartPolicy": "Never"}


@pytest.fixture(scope="module")
def rendered() -> dict[str, dict[str, Any]]:
    """What the chart installs, one object of each kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(chart.manifests("{}")) if each}


@pytest.fixture(scope="module")
def asking(bare_lab: Lab, rendered: dict[str, dict[str, Any]]) -> Iterator[Lab]:
    """A lab with the chart's webhook configuration but without a server: calls of the webhook fail."""
    configuration = rendered["ValidatingWebhookConfiguration"]
    workloads.reserved_namespace(bare_lab.client, NAMESPACE)
    workloads.create_pod(bare_lab, NAMESPACE, "first", **UNTOUCHED)
    bare_lab.client.create(CONFIGURATIONS, configuration)
    try:
        canaries = (create(bare_lab, f"canary-{number}") for number in itertools.count())
        bare_lab.wait(
            lambda: is_asked_about(bare_lab, next(canaries)), workloads.SECONDS, "a deletion to be refused"
        )
        yield bare_lab
    finally:
        bare_lab.client.delete(CONFIGURATIONS, configuration["metadata"]["name"])
        bare_lab.client.delete(workloads.NAMESPACES, NAMESPACE)


def create(
    lab: Lab,
    name: str,
    status: dict[str, Any] = IP,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> str:
    template = workloads.pod_template({}, **UNTOUCHED | spec)
    template["metadata"] = {"name": name, "annotations": annotations or {}}
    lab.client.create(workloads.PODS, {"apiVersion": "v1", "kind": "Pod"} | template, NAMESPACE)
    lab.client.patch(workloads.PODS.sub("status"), name, {"status": status}, NAMESPACE)
    return name


def is_asked_about(lab: Lab, name: str) -> bool:
    try:
        lab.client.delete(workloads.PODS, name, NAMESPACE)
    except ServerError as error:
        if "failed calling webhook" not in error.message:
            raise
        return True
    return False


def disrupted(reason: str, status: str = "True") -> dict[str, Any]:
    return {"conditions": [{"type": "DisruptionTarget", "status": status, "reason": reason}]}


ASKED: dict[str, dict[str, Any]] = {
    "with-an-address": {},
    "running": {"status": IP | {"phase": "Running"}},
    "failed-though-it-restarts-always": {"status": FAILED | {"reason": "NodeAffinity"}},
    "of-a-lost-node": NEVER | {"status": FAILED | disrupted("DeletionByTaintManager")},
    "ended-by-its-kubelet": NEVER | {"status": FAILED | disrupted("TerminationByKubelet")},
    **{reason.lower(): NEVER | {"status": FAILED | {"reason": reason}} for reason in KUBELET_REASONS},
}
NOT_ASKED: dict[str, dict[str, Any]] = {
    "without-an-address": {"status": {}},
    "on-the-host-network": {"hostNetwork": True},
    "succeeded": {"status": SUCCEEDED},
    "evicted-after-its-success": {"status": SUCCEEDED | {"reason": "Evicted"}},
    "failed": NEVER | {"status": FAILED},
    "failed-too-often": {"restartPolicy": "OnFailure", "status": FAILED},
    "took-too-long": NEVER | {"status": FAILED | {"reason": "DeadlineExceeded"}},
    "undisrupted": NEVER | {"status": FAILED | disrupted("Any", status="False")},
    "mirror": {"annotations": {"kubernetes.io/config.mirror": "x"}, "nodeName": "elsewhere"},
}


def test_the_webhook_is_called_for_pods_that_may_need_a_reservation(
    asking: Lab, subtests: pytest.Subtests
) -> None:
    for name, pod in (ASKED | NOT_ASKED).items():
        with subtests.test(name):
            assert is_asked_about(asking, create(asking, name, **pod)) is (name in ASKED)


def test_the_priority_level_of_the_flow_schema_exists(
    bare_lab: Lab, rendered: dict[str, dict[str, Any]]
) -> None:
    # Other tests of this lab install the chart, and with it this FlowSchema.
    name = "of-the-priority-level"
    schema = rendered["FlowSchema"]
    bare_lab.client.create(FLOW_SCHEMAS, schema | {"metadata": schema["metadata"] | {"name": name}})

    def dangling() -> str:
        schema = bare_lab.client.get(FLOW_SCHEMAS, name)
        conditions = schema.get("status", {}).get("conditions", [])
        return next((each["status"] for each in conditions if each["type"] == "Dangling"), "")

    try:
        assert bare_lab.wait(dangling, workloads.SECONDS, "the API server to judge the FlowSchema") == "False"
    finally:
        bare_lab.client.delete(FLOW_SCHEMAS, name)
