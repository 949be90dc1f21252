"""The admission of elasticity: golden cases, each decided a second time on its own outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from api.elasticity import REASON, WAITS
from settings import ElasticitySettings
from tests.admission import admitted, asked
from tests.tables import table
from webhook.admission import Request, ReviewError
from webhook.elasticity.webhook import PlacementWebhook

CASES = sorted((Path(__file__).parent / "data" / "elasticity").glob("*.yaml"))
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web-5d9f",
    "uid": "uid-rs",
    "controller": True,
}


def raw_pod(**parts: Any) -> dict[str, Any]:
    """A pod of a Deployment as it comes to admission; *parts* are merged into metadata and spec."""
    metadata = {"generateName": "web-5d9f-", "namespace": "web", "ownerReferences": [OWNER]}
    spec = {"containers": [{"name": "web", "image": "nginx"}], "schedulerName": "default-scheduler"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | parts.get("metadata", {}),
        "spec": spec | parts.get("spec", {}),
        "status": {},
    }


def request(pod: dict[str, Any], **fields: str) -> Request:
    return asked(pod, namespace=pod["metadata"].get("namespace", ""), **fields)


def gate(**settings: Any) -> PlacementWebhook:
    parsed = ElasticitySettings.model_validate({"enabled": True, **settings})
    return PlacementWebhook(lambda: parsed)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    pod, expect = raw_pod(**case["pod"]), case["expect"]
    feature, question = gate(**case.get("settings", {})), request(pod)

    decision = feature.review(question, deadline=0)

    after = admitted(pod, question, decision)
    others = {name: value for name, value in pod["metadata"].items() if name != "annotations"}
    metadata = others | expect.get("metadata", _explained(pod, expect["audit"]))
    assert decision.allowed
    assert after == pod | {"spec": pod["spec"] | expect.get("spec", {}), "metadata": metadata}
    assert decision.audit == expect["audit"]
    assert list(decision.warnings) == expect.get("warnings", [])
    assert feature.review(request(after), deadline=0).patch == ()


def _explained(pod: dict[str, Any], audit: dict[str, str]) -> dict[str, Any]:
    """A pod that is gated says what it waits for; no other annotation changes."""
    waits = {REASON: WAITS} if "gated" in audit else {}
    found = pod["metadata"].get("annotations", {}) | waits
    return {"annotations": found} if found else {}


def test_what_is_not_known_of_a_pod_survives() -> None:
    pod = raw_pod(metadata={"annotations": {"LOCAL_REPLICAS": "1"}}) | {"unheardOf": {"x": [1]}}
    pod["spec"] |= {"unheardOf": None, "schedulingGates": [{"name": "other", "unheardOf": 1.5}]}
    question = request(pod)

    after = admitted(pod, question, gate().review(question, deadline=0))

    assert after["unheardOf"] == {"x": [1]}
    assert after["spec"]["unheardOf"] is None
    assert after["spec"]["schedulingGates"] == [
        {"name": "other", "unheardOf": 1.5},
        {"name": "drawbridge.io/placement"},
    ]


def test_it_fails_open_and_reviews_new_pods_alone() -> None:
    lives = request(raw_pod(metadata={"annotations": {"LOCAL_REPLICAS": "1"}}), operation="UPDATE")

    assert gate().fails_open()
    for question in (lives, asked(None)):
        assert gate().review(question, deadline=0).audit == {"skipped": "no new pod"}


@table(
    "parts, field",
    {
        "a bare number": ({"metadata": {"annotations": {"LOCAL_REPLICAS": 1}}}, "annotations"),
        "gates that are no list": ({"spec": {"schedulingGates": "none"}}, "schedulingGates"),
        "affinity that is a list": ({"spec": {"affinity": {"nodeAffinity": []}}}, "nodeAffinity"),
    },
)
def test_a_pod_that_cannot_be_read_is_named(parts: dict[str, Any], field: str) -> None:
    with pytest.raises(ReviewError, match=rf"request\.object .*{field}"):
        gate().review(request(raw_pod(**parts)), deadline=0)


def test_a_pod_that_is_too_large_to_be_changed_loses_only_what_the_leader_writes() -> None:
    annotations = {"LOCAL_REPLICAS": "1", "drawbridge.io/placement": "local"}
    large = [{"name": str(number)} for number in range(10_001)]
    pod = raw_pod(metadata={"annotations": annotations}, spec={"volumes": large})
    decision = gate().review(question := request(pod), deadline=0)

    after, [warning] = admitted(pod, question, decision), decision.warnings
    assert after["spec"] == pod["spec"]
    assert after["metadata"]["annotations"] == {"LOCAL_REPLICAS": "1"}
    assert warning.startswith("elasticity: this pod is left as it is: it has about 20026 fields")
