"""Whatever is sent as a pod, its admission is answered, and never stands in the way of the pod."""

from __future__ import annotations

import copy
from base64 import b64decode
from typing import Any

import jsonpatch
import msgspec
import pytest
from prometheus_client import REGISTRY
from werkzeug.test import Client

from tests.test_anycast_hostile import WRONG, Place, places
from tests.test_elasticity_gate import gate, raw_pod
from webhook.app import create_app
from webhook.elasticity import PATH
from webhook.elasticity.affinity import REQUIRED

OURS = {"name": "drawbridge.io/placement"}
TERM = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}], "matchFields": [{"key": "c"}]}
SPEC = {
    "schedulerName": "tke-scheduler",
    "schedulingGates": [{"name": "other"}],
    "tolerations": [{"operator": "Exists", "tolerationSeconds": 5}],
    "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM, {}]}}, "podAffinity": {}},
}
DAEMON = {"kind": "DaemonSet", "name": "agent", "controller": True}
REPLICA = raw_pod(metadata={"annotations": {"LOCAL_REPLICAS": "1"}}, spec=SPEC)
DAEMON_POD = raw_pod(metadata={"ownerReferences": [DAEMON]}, spec=SPEC)


def replaced(pod: dict[str, Any], place: Place, new: object) -> Any:
    whole = {"": copy.deepcopy(pod)}
    part: Any = whole
    for key in ("", *place)[:-1]:
        part = part[key]
    part[("", *place)[-1]] = new
    return whole[""]


@pytest.fixture(scope="module")
def client() -> Client:
    return create_app([gate()]).test_client()


def answer(client: Client, pod: object) -> dict[str, Any]:
    fields = {"uid": "u", "operation": "CREATE", "namespace": "web", "object": pod}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": fields}
    told = client.post(PATH, data=msgspec.json.encode(review), content_type="application/json")
    assert told.status_code == 200
    response: dict[str, Any] = msgspec.json.decode(told.data)["response"]
    return response


def panics() -> float:
    labels = {"webhook": "elasticity"}
    return REGISTRY.get_sample_value("drawbridge_admission_panics_total", labels) or 0.0


CASES = [
    pytest.param(pod, place, id=f"{name} {'/'.join(map(str, place)) or 'whole'}")
    for name, pod in (("replica", REPLICA), ("daemon", DAEMON_POD))
    for place in places(pod)
]


@pytest.mark.parametrize(("pod", "place"), CASES)
def test_a_pod_with_anything_anywhere_is_let_in_and_changed_once(
    client: Client, pod: dict[str, Any], place: Place
) -> None:
    before = panics()
    for new in WRONG:
        odd = replaced(pod, place, new)
        response = answer(client, odd)
        assert response["allowed"]
        if "patch" in response:
            admitted = jsonpatch.apply_patch(odd, msgspec.json.decode(b64decode(response["patch"])))
            gates = odd["spec"].get("schedulingGates", [])
            assert admitted["spec"].get("schedulingGates", []) in (gates, [*gates, OURS])
            assert "patch" not in answer(client, admitted)
    assert panics() == before


@pytest.mark.parametrize(("pod", "edits"), [(REPLICA, 2), (DAEMON_POD, 2)], ids=["replica", "daemon"])
def test_as_it_should_be_it_is_changed_in_all_ways(client: Client, pod: dict[str, Any], edits: int) -> None:
    assert len(answer(client, pod)["auditAnnotations"]) == edits
