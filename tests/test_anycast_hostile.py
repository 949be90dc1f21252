"""Whatever is sent as a node, its admission is answered, and never stands in the way of the node."""

from __future__ import annotations

import copy
import itertools
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import jsonpatch
import msgspec
import pytest
from prometheus_client import REGISTRY
from werkzeug.test import Client

from tests.test_anycast_gate import OURS, gate, raw_node
from webhook.anycast_ip import PATH
from webhook.app import create_app

NODE = raw_node(
    metadata={"annotations": {"a": "b"}, "ownerReferences": [{"kind": "Machine"}], "creationTimestamp": None},
    spec={"providerID": "qcloud:///100003/ins-11112222", "taints": [{"key": "a", "effect": "NoSchedule"}]},
    status={"conditions": [{"type": "Ready"}]},
)
WRONG = (None, True, -1, 1.5, 10**30, "", "x" * 300, "..", [], {}, [[]], [None], {"a": None}, {"~1/": [{}]})
Place = tuple[str | int, ...]


def places(value: object, place: Place = ()) -> Iterator[Place]:
    """Where in *value* something stands that could be something else."""
    yield place
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*place, key))


def replaced(place: Place, new: object) -> Any:
    whole = {"": copy.deepcopy(NODE)}
    part: Any = whole
    for key in ("", *place)[:-1]:
        part = part[key]
    part[("", *place)[-1]] = new
    return whole[""]


@pytest.fixture(scope="module")
def client() -> Client:
    return create_app([gate()]).test_client()


def answer(client: Client, node: object, old: object) -> dict[str, Any]:
    fields = {"uid": "u", "operation": "UPDATE" if old else "CREATE", "object": node, "oldObject": old}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": fields}
    told = client.post(PATH, data=msgspec.json.encode(review), content_type="application/json")
    assert told.status_code == 200
    response: dict[str, Any] = msgspec.json.decode(told.data)["response"]
    return response


def panics() -> float:
    labels = {"webhook": "anycast_ip"}
    return REGISTRY.get_sample_value("drawbridge_admission_panics_total", labels) or 0.0


@pytest.mark.parametrize("place", list(places(NODE)), ids=lambda place: "/".join(map(str, place)) or "whole")
def test_a_node_with_anything_anywhere_is_let_in_and_tainted_when_it_can_be(
    client: Client, place: Place
) -> None:
    before = panics()
    for new, old in itertools.product(WRONG, (None, NODE)):
        node = replaced(place, new)
        response = answer(client, node, old)
        assert response["allowed"]
        if "patch" in response:
            outcome = jsonpatch.apply_patch(node, msgspec.json.decode(b64decode(response["patch"])))
            *others, last = outcome["spec"]["taints"]
            assert (others, last) == (node.get("spec", {}).get("taints", []), OURS)
        assert answer(client, NODE, node)["allowed"]
    assert panics() == before
