"""The API server asks about exactly those nodes that would be given the taint."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import yaml

from api.anycast_ip import ADDRESS_ID, BOUND, TAINT
from certs import issue
from dev.lab import install
from dev.lab.session import Lab
from kube.client import Resource
from kube.errors import ServerError
from kube.types import INSTANCE_TYPE, SUPER_NODE, Node
from settings import AnycastIPSettings
from tests.cluster.workloads import SECONDS
from webhook.anycast_ip.webhook import skip_reason

NODES = Resource("", "v1", "nodes", namespaced=False)
REGISTRATIONS = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", namespaced=False
)
NEED = "tke.cloud.tencent.com/need-aia-ip"
WANTED = {NEED: "true", "example.com/edge": ""}
SETTINGS = AnycastIPSettings.model_validate({"enabled": True, "clusterID": "cls-1", "nodeLabels": WANTED})
OURS = msgspec.to_builtins(TAINT)
VALUES = {
    "anycastIP": {"enabled": True, "clusterID": "cls-1", "nodeLabels": WANTED},
    "cloud": {"region": "ap-singapore"},
}
STATES: dict[str, dict[str, Any]] = {
    "without-anything": {},
    "with-some-label": {"labels": {"a": "b"}},
    "with-one-label-of-two": {"labels": {NEED: "true"}},
    "with-another-value": {"labels": WANTED | {NEED: "false"}},
    "with-the-labels": {"labels": WANTED},
    "of-a-machine-type": {"labels": WANTED | {INSTANCE_TYPE: "S5.LARGE8"}},
    "super": {"labels": WANTED | {INSTANCE_TYPE: SUPER_NODE}},
    "tainted": {"labels": WANTED, "taints": [OURS]},
    "tainted-without-the-labels": {"taints": [OURS]},
    "tainted-otherwise": {
        "labels": WANTED,
        "taints": [OURS | {"effect": "NoExecute"}, OURS | {"key": "example.com/other"}],
    },
    "with-the-originals-annotation": {"labels": WANTED, "annotations": {ADDRESS_ID: "eip-1"}},
    "proven": {"labels": WANTED, "annotations": {BOUND: "{uid}/eip-1"}},
    "proven-of-another": {"labels": WANTED, "annotations": {BOUND: "0-{uid}/eip-1"}},
    "proven-of-nothing": {"labels": WANTED, "annotations": {BOUND: "{uid}/"}},
}
"""What a node may be; {uid} stands for its own."""


def node(name: str, state: dict[str, Any], uid: str) -> dict[str, Any]:
    annotations = {key: value.format(uid=uid) for key, value in state.get("annotations", {}).items()}
    metadata = {"name": name, "labels": state.get("labels", {}), "annotations": annotations}
    spec = {"taints": state.get("taints", [])}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module")
def registration(bare_lab: Lab) -> dict[str, Any]:
    """The chart's, but for a refusal where a node would be let through when nobody answers."""
    now = datetime.now(UTC)
    ca = issue.new_ca("nobody", now, now + timedelta(days=1)).certificate
    certs = {"mode": "files", "existingSecret": "none", "caBundle": base64.b64encode(ca).decode()}
    command = ["template", "drawbridge", str(install.CHART), "--namespace", "drawbridge", "--values", "-"]
    documents = yaml.safe_load_all(
        bare_lab.helm(*command, stdin=json.dumps(VALUES | {"certs": certs})).stdout
    )
    (found,) = (each for each in documents if each and each["kind"] == "MutatingWebhookConfiguration")
    found["webhooks"][0]["failurePolicy"] = "Fail"
    return found


@pytest.fixture(scope="module")
def nodes(bare_lab: Lab) -> Iterator[dict[str, Node]]:
    """One in each state, from before anybody is asked."""
    made = [bare_lab.client.create(NODES, node(name, {}, ""), type=Node) for name in STATES]
    try:
        yield {
            each.metadata.name: bare_lab.client.request(
                "PATCH",
                NODES.path(name=each.metadata.name),
                body=node(each.metadata.name, STATES[each.metadata.name], each.metadata.uid),
                type=Node,
            )
            for each in made
        }
    finally:
        for name in STATES:
            bare_lab.client.delete(NODES, name)


@pytest.fixture(scope="module")
def asking(bare_lab: Lab, nodes: dict[str, Node], registration: dict[str, Any]) -> Iterator[Lab]:
    """A lab with the registration but without a server."""
    bare_lab.client.create(REGISTRATIONS, registration)
    try:
        canary = node("canary", STATES["with-the-labels"], "")
        bare_lab.wait(lambda: creation_is_asked_about(bare_lab, canary), SECONDS, "a node to be refused")
        yield bare_lab
    finally:
        bare_lab.client.delete(REGISTRATIONS, registration["metadata"]["name"])


def creation_is_asked_about(lab: Lab, body: dict[str, Any]) -> bool:
    return is_asked_about(lab, "POST", NODES.path(), body)


def is_asked_about(lab: Lab, method: str, path: str, body: dict[str, Any]) -> bool:
    try:
        lab.client.request(method, path, body=body, query={"dryRun": "All"})
    except ServerError as error:
        # A condition that cannot be evaluated would be another error.
        if 'service "drawbridge-webhook" not found' not in error.message:
            raise
        return True
    return False


def as_patch(old: Node, new: dict[str, Any]) -> dict[str, Any]:
    """*new* as a change that leaves nothing of *old*."""
    metadata = new["metadata"]
    gone = {
        "labels": dict.fromkeys(old.metadata.labels) | metadata["labels"],
        "annotations": dict.fromkeys(old.metadata.annotations) | metadata["annotations"],
    }
    return new | {"metadata": metadata | gone}


def decoded(body: dict[str, Any], uid: str) -> Node:
    return msgspec.convert(body | {"metadata": body["metadata"] | {"uid": uid}}, type=Node)


def test_a_new_node_is_asked_about_when_it_would_be_tainted(asking: Lab, subtests: pytest.Subtests) -> None:
    for name, state in STATES.items():
        body = node("new", state, "uid-of-a-former-one")

        asked = creation_is_asked_about(asking, body)

        with subtests.test(name):
            assert asked is (skip_reason(None, decoded(body, ""), SETTINGS) == "")


def test_a_change_of_a_node_is_asked_about_when_it_would_be_tainted(
    asking: Lab, nodes: dict[str, Node], subtests: pytest.Subtests
) -> None:
    for before, old in nodes.items():
        uid = old.metadata.uid
        for after, state in STATES.items():
            body = node(before, state, uid)

            asked = is_asked_about(asking, "PATCH", NODES.path(name=before), as_patch(old, body))

            with subtests.test(f"from {before} to {after}"):
                assert asked is (skip_reason(old, decoded(body, uid), SETTINGS) == "")


def test_what_a_kubelet_reports_is_never_asked_about(asking: Lab, nodes: dict[str, Node]) -> None:
    report = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    for name in nodes:
        path = NODES.path(name=name, subresource="status")
        assert not is_asked_about(asking, "PATCH", path, report), name
