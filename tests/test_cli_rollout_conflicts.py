"""What was decided on is written although the status moves on, and is not when the spec is another."""

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
    """A rollout of the second template, with a canary."""
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


def meanwhile(api: FakeAPI, change: Callable[[Raw], None]) -> None:
    """Let *change* happen just before the patch."""

    def fault(call: Any) -> None:
        if call.method == "PATCH":
            held = api.list(INGRESS_DAEMONSETS)[0]
            change(held)
            api.put(INGRESS_DAEMONSETS, held)

    api.fault = fault


def move_on(held: Raw) -> None:
    held["status"]["updatedNodes"] = 1


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
    assert after["status"]["updatedNodes"] == 1
    assert (after["spec"], after["metadata"].get("annotations")) != (before["spec"], None)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("promote", "now")])
def test_another_spec_than_was_shown_is_not_changed(verb: str) -> None:
    """A promotion names its canary, and the end of a wait its template: they have no effect on others."""
    api = cluster(verb)
    before = api.list(INGRESS_DAEMONSETS)[0]
    meanwhile(api, replace_template)
    result = cli.run(api, "rollout", verb, *HERE, "--yes")

    assert (result.exit_code, "was changed in the meantime" in result.output) == (1, True)
    replace_template(before)
    assert api.list(INGRESS_DAEMONSETS)[0]["spec"] == before["spec"]
