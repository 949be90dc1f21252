"""The policy of the chart on the API server itself, without any program of ours: the same nodes as by the webhook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.anycast_ip import is_tainted
from cli.explain.prediction import change_of, creation_of
from cli.installation import POLICIES
from dev.lab import chart
from dev.lab.session import Lab
from kube.errors import ApiError
from kube.resources import NODES
from kube.types import Node
from tests.admission import admitted as applied
from tests.charts import ANYCAST_IP
from tests.explained import NODES_OF_ALL_SORTS
from tests.test_anycast_webhook import LABELS, OURS, webhook
from webhook.admission import parse

Raw = dict[str, Any]
MANY = settings(
    max_examples=250, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
BEFORE = [
    {"metadata": {"name": f"stored-{number}", "labels": labels}, "spec": {"taints": taints}}
    for number, (labels, taints) in enumerate(
        (labels, taints)
        for labels in ({}, LABELS, LABELS | {"node.kubernetes.io/instance-type": "eklet"})
        for taints in ([], [OURS])
    )
]


@pytest.fixture(scope="module")
def stored(bare_lab: Lab) -> Iterator[list[Raw]]:
    """Nodes of all sorts, which were there before the policy."""
    client = bare_lab.client
    text = chart.manifests(yaml.safe_dump(ANYCAST_IP | {"admission": {"mutations": "policy"}}))
    policies = [each for each in yaml.safe_load_all(text) if each and each["kind"] in POLICIES]
    nodes = [client.create(NODES, {"apiVersion": "v1", "kind": "Node", **each}) for each in BEFORE]
    for each in policies:
        client.create(POLICIES[each["kind"]], each)
    new = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "new", "labels": LABELS}}
    dry_run = {"dryRun": "All"}
    bare_lab.wait(
        lambda: is_tainted(client.request("POST", NODES.path(), body=new, query=dry_run, type=Node)),
        60,
        "the policy to be in force",
    )
    yield nodes
    for each in policies:
        client.delete(POLICIES[each["kind"]], each["metadata"]["name"])
    for each in nodes:
        client.delete(NODES, each["metadata"]["name"])


def admitted(lab: Lab, method: str, node: Raw) -> Raw | str:
    """What admission makes of *node*, or why it is refused."""
    path = NODES.path() if method == "POST" else NODES.path(None, node["metadata"]["name"])
    try:
        return compared(lab.client.request(method, path, body=node, query={"dryRun": "All"}))
    except ApiError as error:
        return error.message


def compared(node: Raw) -> Raw:
    """Of *node* what anybody chooses: the API server taints nodes that are not ready itself."""
    taints = node["spec"].get("taints") or []
    metadata = {name: node["metadata"].get(name) or {} for name in ("labels", "annotations")}
    return metadata | {
        "taints": [each for each in taints if not each["key"].startswith("node.kubernetes.io/")]
    }


@MANY
@given(new=NODES_OF_ALL_SORTS)
def test_a_node_is_created_as_by_the_webhook(bare_lab: Lab, stored: list[Raw], new: Raw) -> None:
    asked = creation_of(NODES, new)
    review, body = parse(asked.review("uid-1")), dict(asked.object or {})

    found = admitted(bare_lab, "POST", body)

    if not is_refused(new):
        assert found == compared(applied(body, review, webhook().review(review, deadline=0)))


@MANY
@given(number=st.integers(0, len(BEFORE) - 1), new=NODES_OF_ALL_SORTS)
def test_a_node_is_changed_as_by_the_webhook(bare_lab: Lab, stored: list[Raw], number: int, new: Raw) -> None:
    old = bare_lab.client.get(NODES, stored[number]["metadata"]["name"])
    uid, kept = old["metadata"]["uid"], {"name": old["metadata"]["name"], "uid": old["metadata"]["uid"]}
    notes = {key: each.replace("uid-1", uid) for key, each in new["metadata"]["annotations"].items()}
    body = new | {"metadata": new["metadata"] | kept | {"annotations": notes}}
    asked = change_of(NODES, old, body)
    review = parse(asked.review("uid-1"))

    found = admitted(bare_lab, "PUT", dict(asked.object or {}))

    if not is_refused(new):
        assert found == compared(applied(body, review, webhook().review(review, deadline=0)))


def is_refused(node: Raw) -> bool:
    """For two taints of one key and effect."""
    taints = [(each["key"], each["effect"]) for each in node["spec"]["taints"]]
    return len({*taints}) < len(taints)
