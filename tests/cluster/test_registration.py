"""The API server asks about exactly those deletions that may have to wait for a reservation."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from certs import issue
from kube.client import Resource
from kube.errors import ServerError
from lab import install
from lab.session import Lab
from tests.cluster import workloads

NAMESPACE = "asked-about"
REGISTRATIONS = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
)
FLOW_SCHEMAS = Resource("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", namespaced=False)
UNTOUCHED = {"schedulerName": "nobody"}
IP = {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}
FAILED = IP | {"phase": "Failed"}
NEVER = {"restartPolicy": "Never"}


@pytest.fixture(scope="module")
def rendered(bare_lab: Lab) -> dict[str, dict[str, Any]]:
    """What the chart installs: one object of each kind."""
    now = datetime.now(UTC)
    ca = issue.new_ca("nobody", now, now + timedelta(days=1)).certificate
    values = {"certs": {"mode": "files", "existingSecret": "none", "caBundle": base64.b64encode(ca).decode()}}
    command = ["template", "drawbridge", str(install.CHART), "--namespace", "drawbridge", "--values", "-"]
    documents = yaml.safe_load_all(bare_lab.helm(*command, stdin=json.dumps(values)).stdout)
    return {document["kind"]: document for document in documents if document}


@pytest.fixture(scope="module")
def asking(bare_lab: Lab, rendered: dict[str, dict[str, Any]]) -> Iterator[Lab]:
    """A lab with the chart's registration but without a server: a deletion that it asks about is refused."""
    registration = rendered["ValidatingWebhookConfiguration"]
    workloads.reserved_namespace(bare_lab.client, NAMESPACE)
    workloads.create_pod(bare_lab, NAMESPACE, "first", **UNTOUCHED)
    bare_lab.client.create(REGISTRATIONS, registration)
    try:
        canaries = (create(bare_lab, f"canary-{number}") for number in itertools.count())
        bare_lab.wait(
            lambda: is_asked_about(bare_lab, next(canaries)), workloads.SECONDS, "a deletion to be refused"
        )
        yield bare_lab
    finally:
        bare_lab.client.delete(REGISTRATIONS, registration["metadata"]["name"])
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


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({}, id="with an address"),
        pytest.param({"status": IP | {"phase": "Running"}}, id="running"),
        pytest.param({"annotations": {"a": "b"}}, id="annotated"),
        pytest.param({"status": FAILED | {"reason": "NodeAffinity"}}, id="failed though it restarts always"),
        pytest.param(NEVER | {"status": FAILED | disrupted("DeletionByTaintManager")}, id="of a lost node"),
        pytest.param(
            NEVER | {"status": FAILED | disrupted("TerminationByKubelet")}, id="ended by its kubelet"
        ),
        *(
            pytest.param(NEVER | {"status": FAILED | {"reason": reason}}, id=f"failed as {reason}")
            for reason in ("Evicted", "NodeShutdown", "Terminated", "Shutdown", "Preempting", "NodeLost")
        ),
    ],
)
def test_the_api_server_asks_about_a_pod(
    asking: Lab, request: pytest.FixtureRequest, pod: dict[str, Any]
) -> None:
    assert is_asked_about(asking, create(asking, name_of(request), **pod))


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({"status": {}}, id="without an address"),
        pytest.param({"hostNetwork": True}, id="on the host network"),
        pytest.param({"status": IP | {"phase": "Succeeded"}}, id="that has succeeded"),
        pytest.param({"status": IP | {"phase": "Succeeded", "reason": "Evicted"}}, id="that had succeeded"),
        pytest.param(NEVER | {"status": FAILED}, id="that has failed"),
        pytest.param({"restartPolicy": "OnFailure", "status": FAILED}, id="that has failed too often"),
        pytest.param(NEVER | {"status": FAILED | {"reason": "DeadlineExceeded"}}, id="that took too long"),
        pytest.param(NEVER | {"status": FAILED | disrupted("Any", status="False")}, id="undisrupted"),
        pytest.param(
            {"annotations": {"kubernetes.io/config.mirror": "x"}, "nodeName": "elsewhere"}, id="a mirror"
        ),
    ],
)
def test_the_api_server_does_not_ask_about_a_pod(
    asking: Lab, request: pytest.FixtureRequest, pod: dict[str, Any]
) -> None:
    assert not is_asked_about(asking, create(asking, name_of(request), **pod))


def name_of(request: pytest.FixtureRequest) -> str:
    return (
        f"{request.function.__name__}-{request.node.callspec.id}".replace("_", "-").replace(" ", "-").lower()
    )


def test_the_api_server_knows_the_level_that_the_programs_are_put_into(
    bare_lab: Lab, rendered: dict[str, dict[str, Any]]
) -> None:
    name = bare_lab.client.create(FLOW_SCHEMAS, rendered["FlowSchema"])["metadata"]["name"]

    def dangling() -> str:
        schema = bare_lab.client.get(FLOW_SCHEMAS, name)
        conditions = schema.get("status", {}).get("conditions", [])
        return next((each["status"] for each in conditions if each["type"] == "Dangling"), "")

    try:
        assert bare_lab.wait(dangling, workloads.SECONDS, "the API server to judge the FlowSchema") == "False"
    finally:
        bare_lab.client.delete(FLOW_SCHEMAS, name)
