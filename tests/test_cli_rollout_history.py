"""`drawbridge rollout history`, `undo` and `abort`: former templates, and the way back to them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from controllers.ingress_daemonset.desired import revision_of_template
from controllers.ingress_daemonset.revisions import CONTROLLER_REVISIONS, plan_revisions
from dev.fake_api import FakeAPI
from tests import cli
from tests.ingress_daemonset_world import raw_resource
from webhook.ingress_daemonset import INGRESS_DAEMONSETS
from webhook.ingress_daemonset.types import resource

HERE = ("web", "-n", "edge")
ONLY_BEFORE = {"nodeSelector": {"zone": "a"}}
PROVEN = 1
"""The last template that all nodes had."""


def raw_with(number: int, state: str = "Complete", **pod: Any) -> dict[str, Any]:
    containers = {"containers": [{"name": "proxy", "image": f"proxy:{number}"}]}
    raw = raw_resource(containers | pod)
    conditions = [{"type": "Progressing", "status": "True", "reason": state}]
    proven = revision_of_template(
        raw_resource({"containers": [{"name": "proxy", "image": f"proxy:{PROVEN}"}]})["spec"]["template"]
    )
    raw["status"] = {"conditions": conditions, "currentRevision": proven}
    return raw


@pytest.fixture
def api() -> FakeAPI:
    """The third of three templates is being rolled out, in place of the second, the only one with a nodeSelector."""
    found = cli.installed("ingressDaemonSet")
    for number, pod in ((1, {}), (2, ONLY_BEFORE), (3, {})):
        body = plan_revisions(resource(raw_with(number, **pod)), ()).create
        assert body
        found.put(CONTROLLER_REVISIONS, body | {"revision": number})
    found.put(INGRESS_DAEMONSETS, raw_with(3, "RollingOut"))
    return found


def template(api: FakeAPI) -> dict[str, Any]:
    [found] = api.list(INGRESS_DAEMONSETS)
    kept: dict[str, Any] = found["spec"]["template"]
    return kept


def test_the_history_has_the_latest_first_and_names_the_current_one(api: FakeAPI) -> None:
    found = cli.shown(api, "rollout", "history", *HERE)["revisions"]

    assert [(each["revision"], each["current"], each["images"]) for each in found] == [
        (3, True, ["proxy:3"]),
        (2, False, ["proxy:2"]),
        (1, False, ["proxy:1"]),
    ]
    assert "proxy:2" in cli.run(api, "rollout", "history", *HERE).output


def test_nothing_is_changed_without_an_answer(api: FakeAPI) -> None:
    before = copy.deepcopy(template(api))
    result = cli.run(api, "rollout", "undo", *HERE, answer="n\n")

    assert "Return to revision 2 (proxy:2) of edge/web?" in result.output
    assert template(api) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("undo", "--to-revision", "9"), "revision 9 is not kept, or is the current one"),
        (("undo", "--to-revision", "3"), "revision 3 is not kept, or is the current one"),
    ],
)
def test_what_is_not_kept_is_said(api: FakeAPI, arguments: tuple[str, ...], said: str) -> None:
    result = cli.run(api, "rollout", *arguments, *HERE, "--yes")

    assert result.exit_code != 0
    assert said in result.output
    assert "drawbridge rollout history" in result.output


def test_without_a_former_template_there_is_nothing_to_undo(api: FakeAPI) -> None:
    for each in api.list(CONTROLLER_REVISIONS):
        api.remove(CONTROLLER_REVISIONS, each["metadata"]["name"], "edge")

    assert "no former template is kept" in cli.run(api, "rollout", "undo", *HERE, "--yes").output


@pytest.mark.parametrize("state", ["Complete", "RollingOut"], ids=["at rest", "a node joins"])
def test_without_a_rollout_of_a_template_nothing_is_aborted(api: FakeAPI, state: str) -> None:
    api.put(INGRESS_DAEMONSETS, raw_with(PROVEN, state))
    result = cli.run(api, "rollout", "abort", *HERE, "--yes")

    assert result.exit_code == 1
    assert "no template is being rolled out" in result.output
    assert template(api) == raw_with(PROVEN)["spec"]["template"]


@pytest.mark.parametrize(
    ("proven", "said"),
    [("", "no template has reached all nodes yet"), ("0123456789", "0123456789, is not kept")],
)
def test_without_the_template_before_nothing_is_aborted(api: FakeAPI, proven: str, said: str) -> None:
    raw = raw_with(3, "RollingOut")
    api.put(INGRESS_DAEMONSETS, raw | {"status": raw["status"] | {"currentRevision": proven}})
    result = cli.run(api, "rollout", "abort", *HERE, "--yes")

    assert (result.exit_code, said in result.output) == (1, True)
    assert template(api) == raw["spec"]["template"]


def test_a_paused_rollout_returns_when_it_is_resumed(api: FakeAPI) -> None:
    raw = raw_with(3, "Paused")
    raw["spec"]["paused"] = True
    api.put(INGRESS_DAEMONSETS, raw)

    assert "it is paused: resume it" in cli.run(api, "rollout", "abort", *HERE, "--yes").output


def test_a_change_in_the_meantime_is_not_overwritten(api: FakeAPI) -> None:
    def meanwhile(call: Any) -> None:
        if call.method == "PATCH":
            api.fault = lambda _call: None
            changed = raw_with(4, "RollingOut")
            changed["metadata"]["generation"] = 2
            api.put(INGRESS_DAEMONSETS, changed)

    api.fault = meanwhile
    result = cli.run(api, "rollout", "undo", *HERE, "--yes")

    assert "was changed in the meantime; nothing was changed by you" in result.output
    assert template(api)["spec"]["containers"][0]["image"] == "proxy:4"
