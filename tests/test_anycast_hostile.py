"""Whatever is sent as a node, its admission is answered, and never stands in the way of the node."""

from __future__ import annotations

import itertools
from base64 import b64decode

import jsonpatch
import msgspec
import pytest
from werkzeug.test import Client

from tests.hostile_objects import WRONG, Place, answer, panics, places, replaced, spelt
from tests.test_anycast_gate import OURS, gate, raw_node
from webhook.anycast_ip import PATH
from webhook.app import create_app

NODE = raw_node(
    metadata={"annotations": {"a": "b"}, "ownerReferences": [{"kind": "Machine"}], "creationTimestamp": None},
    spec={"providerID": "qcloud:///100003/ins-11112222", "taints": [{"key": "a", "effect": "NoSchedule"}]},
    status={"conditions": [{"type": "Ready"}]},
)


@pytest.fixture(scope="module")
def client() -> Client:
    return create_app([gate()]).test_client()


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
