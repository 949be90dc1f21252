"""Whatever is sent as a pod, its admission is answered, and never stands in the way of the pod."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import jsonpatch
import msgspec
import pytest
from werkzeug.test import Client

from api.elasticity import PATH
from kube.selectors import REQUIRED
from tests.hostile_objects import WRONG, Place, answer, panics, places, replaced, spelt
from tests.test_elasticity_gate import gate, raw_pod
from webhook.app import create_app

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


@pytest.fixture(scope="module")
def client() -> Client:
    return create_app([gate()]).test_client()


CASES = [
    pytest.param(pod, place, id=f"{name} {spelt(place)}")
    for name, pod in (("replica", REPLICA), ("daemon", DAEMON_POD))
    for place in places(pod)
]


@pytest.mark.parametrize(("pod", "place"), CASES)
def test_a_pod_with_anything_anywhere_is_allowed_and_changed_once(
    client: Client, pod: dict[str, Any], place: Place
) -> None:
    before = panics("elasticity")
    for new in WRONG:
        odd = replaced(pod, place, new)
        response = answer(client, PATH, odd, namespace="web")
        assert response["allowed"]
        if "patch" in response:
            admitted = jsonpatch.apply_patch(odd, msgspec.json.decode(b64decode(response["patch"])))
            gates = odd["spec"].get("schedulingGates", [])
            assert admitted["spec"].get("schedulingGates", []) in (gates, [*gates, OURS])
            assert "patch" not in answer(client, PATH, admitted, namespace="web")
    assert panics("elasticity") == before


@pytest.mark.parametrize(("pod", "edits"), [(REPLICA, 2), (DAEMON_POD, 2)], ids=["replica", "daemon"])
def test_as_it_should_be_it_is_changed_in_all_ways(client: Client, pod: dict[str, Any], edits: int) -> None:
    assert len(answer(client, PATH, pod, namespace="web")["auditAnnotations"]) == edits
