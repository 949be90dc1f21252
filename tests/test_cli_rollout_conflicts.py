"""What was decided on is written although the status moves on, and is not when spec or canary are others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from api.ingress_daemonset import INGRESS_DAEMONSETS
from api.ingress_daemonset.types import resource
from controllers.ingress_daemonset.children import version_of
from controllers.ingress_daemonset.revisions import CONTROLLER_REVISIONS, body_of
from dev.fake_api import FakeAPI
from tests import cli
from tests.ingress_daemonset_world import raw_resource

HERE = ("web", "-n", "edge")
VERBS = ("pause", "resume", "promote", "now", "restart", "undo", "abort")
WINDOW = {"days": ["Sat"], "start": "02:00", "durationSeconds": 7200}
Raw = dict[str, Any]


def raw_with(image: str, **spec: Any) -> Raw:
    return raw_resource({"containers": [{"name": "proxy", "image": image}]}, **spec)


def cluster(verb: str) -> FakeAPI:
    """A rollout of the second template with a canary, whose status moves on with each of the next three writes."""
    api = cli.installed("ingressDaemonSet")
    api.put(CONTROLLER_REVISIONS, body_of(resource(raw_with("proxy:1"))))
    raw = raw_with("proxy:2", rolling={"window": WINDOW}, paused=verb == "resume")
    raw["status"] = {
        "conditions": [{"type": "Progressing", "status": "True", "reason": "CanaryPaused"}],
        "currentRevision": version_of(resource(raw_with("proxy:1"))).revision,
        "canary": {"id": "a-1", "revision": version_of(resource(raw_with("proxy:2"))).revision, "nodes": 1},
    }
    api.put(INGRESS_DAEMONSETS, raw)
    return api


def meanwhile(api: FakeAPI, change: Callable[[Raw], None], times: int = 3) -> None:
    """Let *change* happen just before each of so many patches."""
    left = [change] * times

    def fault(call: Any) -> None:
        if call.method == "PATCH" and left:
            held = api.list(INGRESS_DAEMONSETS)[0]
            left.pop()(held)
            api.put(INGRESS_DAEMONSETS, held)

    api.fault = fault


def move_on(held: Raw) -> None:
    held["status"]["updatedNodes"] = held["status"].get("updatedNodes", 0) + 1


def replace_template(held: Raw) -> None:
    held["spec"]["template"]["spec"]["containers"][0]["image"] = "proxy:3"
    held["metadata"]["generation"] += 1


@pytest.mark.parametrize("verb", VERBS)
def test_a_status_that_moves_on_is_no_conflict(verb: str) -> None:
    api = cluster(verb)
    before = api.list(INGRESS_DAEMONSETS)[0]
    meanwhile(api, move_on)
    result = cli.run(api, "rollout", verb, *HERE, answer="y\n")

    assert result.exit_code == 0, result.output
    after = api.list(INGRESS_DAEMONSETS)[0]
    assert after["status"]["updatedNodes"] == 3
    assert (after["spec"], after["metadata"].get("annotations")) != (before["spec"], None)


def replace_canary(held: Raw) -> None:
    held["status"]["canary"]["id"] = "a-2"


def complete(held: Raw) -> None:
    held["status"]["currentRevision"] = version_of(resource(raw_with("proxy:2"))).revision


CHANGED = "was changed in the meantime"


@pytest.mark.parametrize(
    ("verb", "change", "times", "why"),
    [
        *(pytest.param(verb, replace_template, 1, CHANGED, id=f"another template: {verb}") for verb in VERBS),
        pytest.param("promote", replace_canary, 1, CHANGED, id="another canary"),
        pytest.param("abort", complete, 1, "no template is being rolled out", id="it has ended"),
        pytest.param("pause", move_on, 1000, CHANGED, id="a status that never rests"),
    ],
)
def test_what_was_not_decided_on_is_not_written_to(
    verb: str, change: Callable[[Raw], None], times: int, why: str
) -> None:
    api = cluster(verb)
    before = api.list(INGRESS_DAEMONSETS)[0]
    meanwhile(api, change, times)
    result = cli.run(api, "rollout", verb, *HERE, "--yes")

    assert (result.exit_code, why in result.output) == (1, True)
    [after] = api.list(INGRESS_DAEMONSETS)
    if change is replace_template:
        replace_template(before)
    assert (after["spec"], "annotations" in after["metadata"]) == (before["spec"], False)
