"""Pods get the anycast IP of their node: golden cases, and Bindings with anything anywhere."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from werkzeug.test import Client

from api.anycast_ip import ADDRESS, BOUND, NODE_ADDRESS, POD_ADDRESS_PATH, POD_ADDRESS_WAIT_PATH
from dev.fake_api.patches import merged
from kube.errors import NotFound, Unreachable
from settings import AnycastIPSettings
from settings.anycast_ip import NEED_LABEL
from tests.admission import admitted, asked
from tests.hostile_objects import WRONG, Place, answer, panics, places, replaced, spelt
from webhook.anycast_ip.pod_address import AddressedNode, PodAddressWebhook
from webhook.app import create_app

CASES = sorted((Path(__file__).parent / "data" / "anycast_pod_address").glob("*.yaml"))
IP = "203.0.113.7"
ABSENT = {"NotFound": NotFound(404, "NotFound", "gone"), "Unreachable": Unreachable("too late")}
NODE = {
    "metadata": {
        "name": "node-1",
        "uid": "uid-1",
        "labels": {NEED_LABEL: "true"},
        "annotations": {BOUND: "uid-1/eip-1", ADDRESS: IP},
    },
    "status": {"addresses": [{"type": "ExternalIP", "address": IP}]},
}
BINDING = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": "pod-1", "namespace": "games", "uid": "uid-2"},
    "target": {"kind": "Node", "name": "node-1"},
}


def webhook(
    node: dict[str, Any], settings: dict[str, Any], *, waits: bool, absent: str = ""
) -> PodAddressWebhook:
    on = {"enabled": True, "clusterID": "cls-1", "podAddress": {"enabled": True}}
    parsed = AnycastIPSettings.model_validate(on | settings)

    def read(name: str, _: float) -> AddressedNode:
        if absent:
            raise ABSENT[absent]
        assert name == "node-1"
        return msgspec.convert(node, AddressedNode)

    return PodAddressWebhook(read, lambda: parsed, waits)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    expect, binding = case["expect"], merged(BINDING, case.get("binding", {}))
    feature = webhook(
        merged(NODE, case.get("node", {})),
        case.get("settings", {}),
        waits=case.get("waits", False),
        absent=case.get("absent", ""),
    )
    question = asked(binding, subResource="binding", namespace="games")

    decision = feature.review(question, deadline=0)

    assert decision.allowed == ("denied" not in expect)
    assert decision.message.startswith(expect.get("denied", ""))
    assert decision.code == expect.get("code", 0 if decision.allowed else 403)
    assert decision.audit.get("skipped") == expect.get("skipped")
    assert "".join(decision.warnings).startswith(expect.get("warned", ""))
    given = {NODE_ADDRESS: expect["address"]} if "address" in expect else {}
    change = {"metadata": {"annotations": given}} if given else {}
    assert admitted(binding, question, decision) == merged(binding, change)


@pytest.mark.parametrize("waits", [False, True])
def test_only_pods_that_wait_depend_on_the_webhook(waits: bool) -> None:
    assert webhook(NODE, {}, waits=waits).fails_open() == (not waits)


@pytest.fixture(scope="module")
def client() -> Client:
    return create_app([webhook(NODE, {}, waits=waits) for waits in (False, True)]).test_client()


@pytest.mark.parametrize("place", list(places(BINDING)), ids=spelt)
def test_a_binding_with_anything_anywhere_is_admitted_unless_its_pod_waits(
    client: Client, place: Place
) -> None:
    for new, path in itertools.product(WRONG, (POD_ADDRESS_PATH, POD_ADDRESS_WAIT_PATH)):
        binding = replaced(BINDING, place, new)
        assert "allowed" in answer(client, path, binding, None)
        if path == POD_ADDRESS_PATH and place != ("target", "name"):
            assert answer(client, path, binding, None)["allowed"]
    assert panics("anycast_ip_pods") == 0
