"""The admission of anycast_ip: golden cases, each decided a second time on its own outcome."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import jsonpatch
import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from settings import AnycastIPSettings
from webhook.admission import Decision, Request, ReviewError, parse, render
from webhook.anycast_ip import TAINT
from webhook.anycast_ip.webhook import AnycastIPWebhook

CASES = sorted((Path(__file__).parent / "data" / "anycast_ip").glob("*.yaml"))
LABELS = {"tke.cloud.tencent.com/need-aia-ip": "true"}
OURS = msgspec.to_builtins(TAINT)


def raw_node(**parts: Any) -> dict[str, Any]:
    metadata = {"name": "node-1", "uid": "uid-1", "labels": LABELS} | parts.pop("metadata", {})
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}} | parts


def request(operation: str, node: dict[str, Any], old: dict[str, Any] | None = None) -> Request:
    fields = {"uid": "request-1", "operation": operation, "name": "node-1", "object": node, "oldObject": old}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": fields}
    return parse(msgspec.json.encode(review))


def gate(**settings: Any) -> AnycastIPWebhook:
    parsed = AnycastIPSettings.model_validate({"enabled": True, "clusterID": "cls-1", **settings})
    return AnycastIPWebhook(lambda: parsed)


def outcome(node: dict[str, Any], question: Request, decision: Decision) -> dict[str, Any]:
    """*node* as the API server has it after it applied the answer."""
    response = msgspec.json.decode(render(question, decision))["response"]
    assert response["allowed"]
    operations = msgspec.json.decode(b64decode(response.get("patch", "W10=")))
    result: dict[str, Any] = jsonpatch.apply_patch(node, operations)
    return result


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    node = raw_node(**case["node"])
    old = raw_node(**case["old"]) if "old" in case else None
    question = request("UPDATE" if old else "CREATE", node, old)
    feature = gate(**case.get("settings", {}))

    decision = feature.review(question, deadline=0)

    expect = case["expect"]
    admitted = outcome(node, question, decision)
    assert admitted["spec"].get("taints", []) == expect["taints"]
    assert admitted | {"spec": {}} == node | {"spec": {}}
    assert decision.audit.get("skipped") == expect.get("skipped")
    assert list(decision.warnings) == expect.get("warnings", [])
    again = feature.review(request("UPDATE" if old else "CREATE", admitted, old), deadline=0)
    assert again.patch == ()


TAINTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["a", "b", OURS["key"]]),
            "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
        },
        optional={"value": st.sampled_from(["true", ""])},
    ),
    max_size=4,
)


@given(TAINTS)
def test_other_taints_are_never_touched(taints: list[dict[str, str]]) -> None:
    node = raw_node(spec={"taints": taints, "unheardOf": {"x": [1]}})
    question = request("CREATE", node)

    spec = outcome(node, question, gate().review(question, deadline=0))["spec"]

    assert spec["taints"][: len(taints)] == taints
    assert spec["taints"][len(taints) :] in ([], [OURS])
    assert any((each["key"], each["effect"]) == (OURS["key"], "NoSchedule") for each in spec["taints"])
    assert spec["unheardOf"] == {"x": [1]}


def test_it_fails_open() -> None:
    assert gate().fails_open()


@pytest.mark.parametrize("field", ["object", "oldObject"])
def test_a_node_that_cannot_be_read_is_named(field: str) -> None:
    nodes = {"object": raw_node(), "oldObject": raw_node()} | {field: {"spec": {"taints": "none"}}}
    question = request("UPDATE", nodes["object"], nodes["oldObject"])

    with pytest.raises(ReviewError, match=rf"request\.{field} .*spec\.taints"):
        gate().review(question, deadline=0)
