"""Admission of anycast_ip: golden cases, each decided again on its own outcome, and objects with anything anywhere."""

from __future__ import annotations

import itertools
from base64 import b64decode
from pathlib import Path
from typing import Any

import jsonpatch
import msgspec
import pytest
import yaml
from werkzeug.test import Client

from api.anycast_ip import PATH, TAINT
from settings import AnycastIPSettings
from tests.admission import admitted, asked
from tests.hostile_objects import WRONG, Place, answer, panics, places, replaced, spelt
from webhook.admission import ReviewError
from webhook.anycast_ip.webhook import AnycastIPWebhook
from webhook.app import create_app

CASES = sorted((Path(__file__).parent / "data" / "anycast_ip").glob("*.yaml"))
LABELS = {"tke.cloud.tencent.com/need-aia-ip": "true"}
OURS = msgspec.to_builtins(TAINT)


def raw_node(**parts: Any) -> dict[str, Any]:
    metadata = {"name": "node-1", "uid": "uid-1", "labels": LABELS} | parts.pop("metadata", {})
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}} | parts


def webhook(**settings: Any) -> AnycastIPWebhook:
    parsed = AnycastIPSettings.model_validate({"enabled": True, "clusterID": "cls-1", **settings})
    return AnycastIPWebhook(lambda: parsed)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    node = raw_node(**case["node"])
    old = raw_node(**case["old"]) if "old" in case else None
    question = asked(node, old)
    feature = webhook(**case.get("settings", {}))

    decision = feature.review(question, deadline=0)

    expect = case["expect"]
    after = admitted(node, question, decision)
    assert decision.allowed
    assert after["spec"].get("taints", []) == expect["taints"]
    assert after | {"spec": {}} == node | {"spec": {}}
    assert decision.audit.get("skipped") == expect.get("skipped")
    assert list(decision.warnings) == expect.get("warnings", [])
    assert feature.review(asked(after, old), deadline=0).patch == ()


def test_it_fails_open() -> None:
    assert webhook().fails_open()


@pytest.mark.parametrize("field", ["object", "oldObject"])
def test_a_node_that_cannot_be_read_is_named(field: str) -> None:
    nodes = {"object": raw_node(), "oldObject": raw_node()} | {field: {"spec": {"taints": "none"}}}
    question = asked(nodes["object"], nodes["oldObject"])

    with pytest.raises(ReviewError, match=rf"request\.{field} .*spec\.taints"):
        webhook().review(question, deadline=0)


NODE = raw_node(
    metadata={"annotations": {"a": "b"}, "ownerReferences": [{"kind": "Machine"}], "creationTimestamp": None},
    spec={"providerID": "qcloud:///100003/ins-11112222", "taints": [{"key": "a", "effect": "NoSchedule"}]},
    status={"conditions": [{"type": "Ready"}]},
)


@pytest.fixture(scope="module")
def client() -> Client:
    return create_app([webhook()]).test_client()


@pytest.mark.parametrize("place", list(places(NODE)), ids=spelt)
def test_a_node_with_anything_anywhere_is_admitted_and_tainted_when_it_can_be(
    client: Client, place: Place
) -> None:
    before = panics("anycast_ip")
    for new, old in itertools.product(WRONG, (None, NODE)):
        node = replaced(NODE, place, new)
        response = answer(client, PATH, node, old)
        assert response["allowed"]
        if "patch" in response:
            outcome = jsonpatch.apply_patch(node, msgspec.json.decode(b64decode(response["patch"])))
            *others, last = outcome["spec"]["taints"]
            assert (others, last) == (node.get("spec", {}).get("taints", []), OURS)
        assert answer(client, PATH, NODE, node)["allowed"]
    assert panics("anycast_ip") == before
