"""The fake API server's own parts; that it answers as the real one is tested in tests/cluster/test_fake_api.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dev.fake_api import FakeAPI
from dev.fake_api.server import NAMESPACES
from kube.client import Client
from kube.errors import Expired, event_error
from kube.resources import CONFIG_MAPS, DEPLOYMENTS, NODES, PODS, Selection
from tests.api_scenarios import SCENARIOS, run, workload
from tests.misbehaving_server import serving


@pytest.fixture
def api() -> FakeAPI:
    made = FakeAPI()
    made.put(NAMESPACES, {"metadata": {"name": "edge"}})
    return made


@pytest.fixture(params=["in process", "over HTTP"])
def client(request: pytest.FixtureRequest, api: FakeAPI) -> Iterator[Client]:
    if request.param == "in process":
        yield api.client()
    else:
        with serving(api) as server:
            yield server.client()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_runs_to_its_end_and_reads_back_what_was_answered(scenario: str, api: FakeAPI) -> None:
    outcomes = run(api.client(), "edge", SCENARIOS[scenario])

    assert [each for each in outcomes if each.error and each.error[0] > 500] == []


def test_a_watch_brings_each_change_once_and_a_write_of_what_is_there_none(
    api: FakeAPI, client: Client
) -> None:
    start = client.list(CONFIG_MAPS, "edge").resource_version
    client.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}}, "edge")
    for value in ("1", "2", "2"):
        client.patch(CONFIG_MAPS, "a", {"data": {"x": value}}, "edge")
    client.delete(CONFIG_MAPS, "a", "edge")

    assert [each["type"] for each in events(client, start)] == ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


def test_who_watches_a_selection_sees_what_enters_and_leaves_it(api: FakeAPI, client: Client) -> None:
    start = str(api.version)
    api.put(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "edge"}})
    api.edit(CONFIG_MAPS, "a", {"metadata": {"labels": {"x": "y"}}}, "edge")
    api.edit(CONFIG_MAPS, "a", {"metadata": {"labels": {"x": None}}}, "edge")

    found = events(client, start, label_selector="x in (y, z)")
    assert [each["type"] for each in found] == ["ADDED", "DELETED", "BOOKMARK"]


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("x=y", True),
        ("x==y,!z", True),
        ("x!=y", False),
        ("x in (a, y)", True),
        ("x notin (a,y)", False),
        ("x", True),
        ("z", False),
        ("z notin (a)", True),
    ],
)
def test_labels_select(selector: str, matches: bool, api: FakeAPI, client: Client) -> None:
    api.put(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "edge", "labels": {"x": "y"}}})

    assert len(client.list(CONFIG_MAPS, label_selector=selector).items) == matches


def test_history_that_was_compacted_is_expired(api: FakeAPI, client: Client) -> None:
    start = str(api.version)
    api.put(NODES, {"metadata": {"name": "n1"}})
    api.compact()

    [error] = events(client, start)
    assert isinstance(event_error(json.dumps(error["object"]).encode()), Expired)


def test_mutating_hooks_change_what_is_stored_but_not_a_status(api: FakeAPI, client: Client) -> None:
    def policy(raw: dict[str, Any]) -> None:
        raw["spec"]["template"]["spec"].setdefault("tolerations", []).append(
            {"key": "policy", "operator": "Exists"}
        )

    api.mutate(DEPLOYMENTS, policy)
    made = client.create(DEPLOYMENTS, {"metadata": {"name": "a"}, **workload()}, "edge")
    assert made["spec"]["template"]["spec"]["tolerations"] == [{"key": "policy", "operator": "Exists"}]

    again = client.patch(DEPLOYMENTS, "a", {"spec": {"replicas": 1}}, "edge")
    assert len(again["spec"]["template"]["spec"]["tolerations"]) == 2

    client.patch(DEPLOYMENTS.sub("status"), "a", {"status": {"replicas": 1}}, "edge")
    assert len(api.get(DEPLOYMENTS, "a", "edge")["spec"]["template"]["spec"]["tolerations"]) == 2


def test_no_hook_is_asked_about_a_pod_that_ends_already_and_not_sooner(api: FakeAPI, client: Client) -> None:
    asked = []
    api.put(PODS, {"metadata": {"name": "a", "namespace": "edge"}, "spec": {"nodeName": "n"}})
    api.validate(PODS, asked.append)
    for seconds in (30, None, 40, 20, 0):
        client.delete(PODS, "a", "edge", grace_seconds=seconds)

    assert len(asked) == 3


def test_each_field_belongs_to_the_manager_that_wrote_it_last(api: FakeAPI) -> None:
    ours, theirs = api.client("drawbridge"), api.client("kubectl-edit")
    ours.create(DEPLOYMENTS, {"metadata": {"name": "a"}, **workload(replicas=3)}, "edge")
    change = {"replicas": 4, "template": {"spec": {"hostNetwork": True}}}
    theirs.patch(DEPLOYMENTS, "a", {"spec": change}, "edge")

    assert "f:template" in owned_by(api, "drawbridge")
    assert owned_by(api, "kubectl-edit") == {
        "f:replicas": {},
        "f:template": {"f:spec": {"f:hostNetwork": {}}},
    }
    assert "f:replicas" not in owned_by(api, "drawbridge")

    ours.patch(DEPLOYMENTS, "a", {"spec": {"template": {"spec": {"hostNetwork": None}}}}, "edge")
    assert owned_by(api, "kubectl-edit") == {"f:replicas": {}}


def events(client: Client, since: str, **selectors: str) -> list[dict[str, Any]]:
    resource = NODES if not selectors and client.list(NODES).items else CONFIG_MAPS
    selection = Selection(**selectors)
    with client.watch(resource, selection, resource_version=since, duration=1, read_timeout=10) as stream:
        return [msgspec.json.decode(line) for line in stream]


def owned_by(api: FakeAPI, manager: str) -> dict[str, Any]:
    """Of the Deployment's spec, without the marks of maps that are there."""
    entries = api.get(DEPLOYMENTS, "a", "edge")["metadata"]["managedFields"]
    found = [each["fieldsV1"].get("f:spec", {}) for each in entries if each["manager"] == manager]
    marked: dict[str, Any] = {name: each for part in found for name, each in part.items() if name != "."}
    return _unmarked(marked)


def _unmarked(tree: dict[str, Any]) -> dict[str, Any]:
    return {name: _unmarked(below) for name, below in tree.items() if name != "."}
