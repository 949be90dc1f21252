"""`drawbridge simulate rollout`: the waves, and that nothing but reads is done for them."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.ingress_daemonset.desired import revision_of
from dev.fake_api import FakeAPI
from tests import cli
from tests.ingress_daemonset_world import DETACHED, TIMESTAMP, World, raw_resource
from webhook.ingress_daemonset.types import resource

NODES, DEPLOYMENTS = cli.resource("Node"), cli.resource("Deployment")
IDS = cli.resource("IngressDaemonSet")
BY_NODE = {"annotateNodeToDetach": {"key": DETACHED, "value": "true", "gracePeriodSeconds": 10}}
SIDECAR = {"containers": [{"name": "proxy", "image": "proxy:1"}, {"name": "log", "image": "log:1"}]}
ROLLOUT = ("simulate", "rollout", "web", "-n", "edge")
Raw = dict[str, Any]


def world(*names: str, pod: Raw | None = None, **spec: Any) -> World:
    """At rest."""
    created = World(raw_resource(pod, **spec), *names)
    created.settle()
    return created


def installed(there: World) -> FakeAPI:
    api = cli.installed("ingressDaemonSet")
    api.ensure_namespace("edge")
    api.put(IDS, there.raw)
    for node in there.nodes.values():
        api.put(NODES, node)
    for held in there.deployments.values():
        api.put(DEPLOYMENTS, held)
    return api


def waves(found: Raw) -> list[list[str]]:
    return [[turn["node"] for turn in wave["turns"]] for wave in found["waves"]]


def test_a_new_image_is_rolled_out_in_waves_of_the_budget_and_nothing_is_written() -> None:
    api = installed(world("a", "b", "c", rolling={"maxUnavailableNodes": 2, **BY_NODE}))
    before = len(api.calls)
    found = cli.shown(api, *ROLLOUT, "--image", "proxy:2")

    assert waves(found) == [["a", "b"], ["c"]]
    assert (found["nodes"], found["budget"], found["budgetField"]) == (3, 2, "maxUnavailableNodes")
    assert (found["podsSeconds"], found["measured"], found["paused"]) == (30, 0, False)
    assert found["what"] == "after the change to proxy:2"
    assert {each.method for each in api.calls[before:]} == {"GET"}


def test_people_read_the_order_the_times_and_the_end() -> None:
    api = installed(world("a", "b", "c", rolling={"maxUnavailableNodes": 2, **BY_NODE}))
    printed = cli.run(api, *ROLLOUT, "--image", "proxy:2").output

    assert "Rollout of edge/web, after the change to proxy:2: ends at " in printed
    assert "UTC, in 80s" in printed
    assert "at most 2 at a time (maxUnavailableNodes); pods take 30s on a node (assumed" in printed
    rows = [line.split() for line in printed.splitlines() if line[:1].isdigit() and "nodes" not in line]
    assert rows == [["1", "0s", "10s", "40s", "a,", "b"], ["2", "40s", "50s", "80s", "c"]]


def test_without_an_image_it_is_the_rollout_under_way_and_else_a_restart() -> None:
    there = world("a", "b", rolling={"maxUnavailableNodes": 1})
    restarted = cli.shown(installed(there), *ROLLOUT)
    assert (restarted["what"], waves(restarted)) == ("after drawbridge rollout restart", [["a"], ["b"]])

    there.retemplate("proxy:2")
    there.turn()
    under_way = cli.shown(installed(there), *ROLLOUT)
    assert (under_way["what"], waves(under_way)) == ("as it is under way", [["a"], ["b"]])


def test_a_paused_one_is_played_as_if_it_were_resumed() -> None:
    api = installed(world("a", "b", paused=True, rolling={"maxUnavailableNodes": 1}))

    assert waves(cli.shown(api, *ROLLOUT, "--image", "proxy:2")) == [["a"], ["b"]]
    assert "It is paused: this is what happens once" in cli.run(api, *ROLLOUT).output


def test_nodes_that_will_not_be_updated_are_named_with_the_reason() -> None:
    there = world("a", "b", rolling={"maxUnavailableNodes": 1})
    there.nodes["a"]["status"]["conditions"][0]["status"] = "False"
    found = cli.shown(installed(there), *ROLLOUT, "--image", "proxy:2")

    assert [each["node"] for each in found["notUpdated"]] == ["a", "b"]
    assert "NotReady" in found["notUpdated"][0]["why"]
    assert (found["waves"], found["endsAt"]) == ([], None)
    assert "it does not end" in cli.run(installed(there), *ROLLOUT, "--image", "proxy:2").output


def test_what_other_programs_must_do_is_named_as_an_assumption() -> None:
    timestamp = {"waitForDetachmentByAnnotatedTimestamp": {"key": TIMESTAMP, "gracePeriodSeconds": 5}}
    rolling = {"maxUnavailableNodes": 1, **BY_NODE, **timestamp}
    there = World(raw_resource(rolling=rolling, healthCheckNodePorts=[10080]), "a")
    there.settle()
    assumed = cli.shown(installed(there), *ROLLOUT)["assumptions"]

    assert [each.split()[0] for each in assumed] == ["annotation", "health"]
    assert TIMESTAMP in assumed[0]


def test_what_load_balancers_and_clients_must_do_is_named_as_an_assumption() -> None:
    weights = {"setWeightToDetach": {"loadBalancers": ["lb-1"]}}
    connections = {"waitForConnections": {"ports": [80], "timeoutSeconds": 600}}
    there = World(raw_resource(rolling={"maxUnavailableNodes": 1, **weights, **connections}), "a")
    there.settle()
    assumed = cli.shown(installed(there), *ROLLOUT)["assumptions"]

    assert [each.split()[0] for each in assumed] == ["lb-1", "open"]
    assert "up to 10m longer" in assumed[1]


@pytest.mark.parametrize(
    ("pod", "image", "expected"),
    [
        pytest.param({}, "other=proxy:2", "its containers are proxy", id="an unknown name"),
        pytest.param(SIDECAR, "proxy:2", "its containers are proxy, log", id="which of two"),
    ],
)
def test_an_image_for_no_container_is_refused_with_the_names(pod: Raw, image: str, expected: str) -> None:
    result = cli.run(installed(world("a", pod=pod)), *ROLLOUT, "--image", image)

    assert result.exit_code == 1
    assert expected in result.output


def test_one_of_several_containers_is_named() -> None:
    api = installed(world("a", pod=SIDECAR))

    assert waves(cli.shown(api, *ROLLOUT, "--image", "log=log:2")) == [["a"]]


def test_an_object_that_the_controllers_cannot_read_is_said_to_be_one() -> None:
    there = world("a")
    there.raw["spec"]["podsPerNode"] = "two"
    result = cli.run(installed(there), *ROLLOUT)

    assert result.exit_code == 1
    assert "cannot be read, and the controllers ignore it" in result.output


@pytest.mark.parametrize(
    ("pause", "said"),
    [
        ({}, "it goes on with drawbridge rollout promote, and the time until then is not counted"),
        ({"durationSeconds": 300}, "it goes on after 5m"),
    ],
    ids=["by hand", "by time"],
)
def test_a_canary_is_a_wave_by_itself_with_its_pause(pause: Raw, said: str) -> None:
    rolling = {"maxUnavailableNodes": 2, "canary": {"nodes": 1, "pause": pause}, **BY_NODE}
    api = installed(world("a", "b", "c", rolling=rolling))

    assert waves(cli.shown(api, *ROLLOUT, "--image", "proxy:2")) == [["a"], ["b", "c"]]
    printed = cli.run(api, *ROLLOUT, "--image", "proxy:2").output
    assert f"it is paused for its canary: {said}." in printed


def test_a_template_that_failed_is_not_foreseen_and_another_one_is() -> None:
    there = world("a", "b", rolling={"maxUnavailableNodes": 1, "autoRollback": True})
    there.retemplate("proxy:2")
    failed = {
        "revision": revision_of(resource(there.raw)),
        "toRevision": "aaaaaaaaaa",
        "reason": "it crashes",
    }
    there.raw["status"] = {"rollback": failed, "currentRevision": "aaaaaaaaaa"}
    api = installed(there)

    refused = cli.run(api, *ROLLOUT)
    assert refused.exit_code == 1
    assert "its template has failed" in refused.output
    assert waves(cli.shown(api, *ROLLOUT, "--image", "proxy:3")) == [["a"], ["b"]]
