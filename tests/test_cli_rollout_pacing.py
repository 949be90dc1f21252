"""`drawbridge rollout` shows a metric, waves and a window, `now` does not wait for it, and `simulate` plays them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from controllers.ingress_daemonset.desired import applied_digest
from dev.fake_api import FakeAPI
from tests import cli
from tests.factories import NOW
from tests.ingress_daemonset_world import DETACHED, World, annotations_of_the_only_one, raw_resource
from tests.test_cli_simulate_rollout import ROLLOUT, installed, waves
from webhook.ingress_daemonset import INGRESS_DAEMONSETS, UPDATE_NOW
from webhook.ingress_daemonset.types import resource

HERE = ("web", "-n", "edge")
ZONE = "topology.kubernetes.io/zone"
SATURDAYS = {"days": ["Sat"], "start": "02:00", "durationSeconds": 7200}
BY_NODE = {"annotateNodeToDetach": {"key": DETACHED, "value": "true", "gracePeriodSeconds": 10}}
METRIC = {"query": "errors", "max": 0.1, "forSeconds": 600}
Raw = dict[str, Any]


def ago(seconds: float) -> str:
    return f"{NOW - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def cluster(status: Raw, **rolling: Any) -> FakeAPI:
    raw = raw_resource(rolling=rolling)
    raw["status"] = {
        "conditions": [{"type": "Progressing", "status": "True", "reason": "RollingOut"}],
        **status,
    }
    api = cli.installed("ingressDaemonSet")
    api.put(INGRESS_DAEMONSETS, raw)
    return api


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ({}, "Its metric has not been measured yet"),
        ({"measuredAt": ago(5), "value": "0.05", "passingSince": ago(95)}, "Its metric: 0.05, good for "),
        ({"measuredAt": ago(5), "message": "it has 2 series"}, "Its metric: it has 2 series; measured "),
        ({"measuredAt": ago(5), "message": "it is 1", "failedAt": ago(5)}, "Its metric has failed: it is 1"),
    ],
)
def test_what_is_said_of_a_metric(metric: Raw, said: str) -> None:
    canary = {
        "id": "a-1",
        "revision": "a",
        "nodes": 1,
        "nodesComplete": 1,
        "completeSince": ago(99),
        "metric": metric,
    }

    assert said in cli.run(cluster({"canary": canary}), "rollout", "get", *HERE).output


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"current": "b", "next": ["c", ""]}, f"Waves by {ZONE}: b is in progress, then c, nodes without it"),
        ({"current": "b", "completedAt": ago(9), "next": ["c"]}, f"Waves by {ZONE}: b is complete, then c"),
        ({"current": "", "next": []}, f"Waves by {ZONE}: nodes without it is in progress"),
    ],
)
def test_what_is_said_of_waves(found: Raw, said: str) -> None:
    api = cluster({"waves": {"label": ZONE, "digest": "a", **found}})

    assert said in cli.run(api, "rollout", "get", *HERE).output
    assert said in cli.run(api, "explain", "ingressdaemonset", *HERE).output


def test_it_is_said_when_the_window_opens() -> None:
    opens = f"{NOW + timedelta(hours=3):%Y-%m-%dT%H:%M:%SZ}"
    api = cluster({"rollout": {"toRevision": "a", "nodes": 2, "nodesLeft": 2, "windowOpensAt": opens}})

    assert "its window opens in 3h" in cli.run(api, "rollout", "get", *HERE).output


def test_the_present_template_does_not_wait_for_the_window() -> None:
    api = cluster({}, window=SATURDAYS)
    assert "not waiting for its window" in cli.run(api, "rollout", "now", *HERE, "--yes").output
    assert annotations_of_the_only_one(api) == {
        UPDATE_NOW: applied_digest(resource(api.list(INGRESS_DAEMONSETS)[0]))
    }

    assert "nothing was changed" in cli.run(api, "rollout", "now", *HERE, "--yes").output


def test_without_a_window_there_is_nothing_to_wait_for() -> None:
    api = cluster({})
    ended = cli.run(api, "rollout", "now", *HERE, "--yes")

    assert ended.exit_code == 1
    assert "it has no window" in ended.output
    assert annotations_of_the_only_one(api) == {}


def world(*names: str, **rolling: Any) -> World:
    """At rest; each node is in a zone of its name's first letter."""
    created = World(raw_resource(rolling={"maxUnavailableNodes": 2, **BY_NODE, **rolling}), *names)
    for name, node in created.nodes.items():
        node["metadata"]["labels"] = {ZONE: name[0]}
    created.settle()
    return created


def test_waves_are_played_with_their_pauses() -> None:
    there = world("b1", "a1", "a2", "b2", waves={"byLabel": ZONE, "pause": {"durationSeconds": 600}})
    there.raw["status"] = {"currentRevision": "former"}
    found = cli.shown(installed(there), *ROLLOUT, "--image", "proxy:2")

    assert waves(found) == [["a1", "a2"], ["b1", "b2"]]
    [paused] = found["wavePauses"]
    assert (paused["label"], paused["wave"], paused["seconds"]) == (ZONE, "a", 600)
    begin, end = (datetime.fromisoformat(found["waves"][number]["turns"][0]["beginsAt"]) for number in (0, 1))
    assert end - begin >= timedelta(seconds=600)
    assert (
        "wave a is complete: the next one begins after 10m"
        in cli.run(installed(there), *ROLLOUT, "--image", "proxy:2").output
    )


def test_a_window_is_waited_for() -> None:
    opens = NOW.replace(second=0, microsecond=0) + timedelta(hours=5)
    there = world("a1", "a2", window={"start": f"{opens:%H:%M}", "durationSeconds": 7200})
    there.raw["status"] = {"currentRevision": "former"}
    found = cli.shown(installed(there), *ROLLOUT, "--image", "proxy:2")

    [wave] = found["waves"]
    assert datetime.fromisoformat(wave["turns"][0]["beginsAt"]) == opens
    assert any("nodes begin in the window only" in each for each in found["assumptions"])


@pytest.mark.parametrize(("pause", "seconds"), [(0, 600), (900, 900)])
def test_a_metric_is_assumed_to_be_good(pause: int, seconds: int) -> None:
    canary = {"nodes": 1, "metric": METRIC, "pause": {"durationSeconds": pause}}
    there = world("a1", "a2", "a3", canary=canary)
    there.raw["status"] = {"currentRevision": "former"}
    found = cli.shown(installed(there), *ROLLOUT, "--image", "proxy:2")

    assert waves(found) == [["a1"], ["a2", "a3"]]
    assert found["pause"]["seconds"] == seconds
    assert any("metric of the canary is good" in each for each in found["assumptions"])
