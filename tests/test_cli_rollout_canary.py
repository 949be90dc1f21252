"""`drawbridge rollout get` shows the canary, and `promote` lets the other nodes follow it."""

from __future__ import annotations

from typing import Any

import pytest

from dev.fake_api import FakeAPI
from tests import cli
from tests.ingress_daemonset_world import annotations_of_the_only_one, raw_resource
from webhook.ingress_daemonset import INGRESS_DAEMONSETS, PROMOTE

HERE = ("web", "-n", "edge")
CANARY = {
    "id": "0123456789-1767323045",
    "revision": "0123456789",
    "startedAt": "2026-01-02T03:04:05Z",
    "nodes": 2,
    "nodesComplete": 2,
    "completeSince": "2026-01-02T03:05:05Z",
}
Raw = dict[str, Any]


def cluster(canary: Raw | None) -> FakeAPI:
    raw = raw_resource()
    raw["status"] = {"conditions": [{"type": "Progressing", "status": "True", "reason": "CanaryPaused"}]}
    raw["status"] |= {"canary": canary} if canary else {}
    api = cli.installed("ingressDaemonSet")
    api.put(INGRESS_DAEMONSETS, raw)
    return api


def test_the_canary_is_shown() -> None:
    api = cluster(CANARY)

    assert "Canary: 2 of 2 nodes, complete for " in cli.run(api, "rollout", "get", *HERE).output
    found = cli.shown(api, "rollout", "get", *HERE)["canary"]
    assert (found["nodes"], found["nodesComplete"], found["promotedAt"]) == (2, 2, None)


@pytest.mark.parametrize(
    ("canary", "said"),
    [
        ({"nodesComplete": 1, "completeSince": ""}, "Canary: 1 of 2 nodes complete"),
        ({"promotedAt": "2026-01-02T03:06:05Z"}, "Canary: 2 nodes, promoted "),
    ],
)
def test_what_is_said_of_it(canary: Raw, said: str) -> None:
    assert said in cli.run(cluster(CANARY | canary), "rollout", "get", *HERE).output


def test_it_is_promoted_by_its_id() -> None:
    api = cluster(CANARY)
    result = cli.run(api, "rollout", "promote", *HERE, "--yes")

    assert result.exit_code == 0, result.output
    assert annotations_of_the_only_one(api) == {PROMOTE: CANARY["id"]}
    again = cli.run(api, "rollout", "promote", *HERE, "--yes")
    assert "promoted already; nothing was changed" in again.output


def test_one_that_the_pause_has_promoted_is_left_alone() -> None:
    api = cluster(CANARY | {"promotedAt": "2026-01-02T03:06:05Z"})

    assert "nothing was changed" in cli.run(api, "rollout", "promote", *HERE, "--yes").output
    assert annotations_of_the_only_one(api) == {}


def test_without_a_canary_there_is_nothing_to_promote() -> None:
    result = cli.run(cluster(None), "rollout", "promote", *HERE, "--yes")

    assert result.exit_code == 1
    assert "it has no canary in progress" in result.output
