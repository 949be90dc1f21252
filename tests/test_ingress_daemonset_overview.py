"""What the status says of a rollout as a whole: its plan while it runs, and how the last ones ended."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from api.health_checks import SCHEDULED
from api.ingress_daemonset import APPLIED_TEMPLATE
from api.ingress_daemonset.types import resource
from controllers.ingress_daemonset.detachment import holders_of
from controllers.ingress_daemonset.forecast import forecast
from controllers.ingress_daemonset.revisions import body_of
from controllers.ingress_daemonset.status import HISTORY_SIZE, pace_of
from tests.ingress_daemonset_rolling import Rolling, at
from tests.ingress_daemonset_world import DETACHED, TIMESTAMP, World, raw_resource

Raw = dict[str, Any]


def test_the_plan_names_wave_nodes_left_and_the_nodes_that_are_next() -> None:
    rolling = Rolling(*(f"n{number:02}" for number in range(1, 12)))
    before = rolling.status["currentRevision"]
    assert (len(before), {"rollout", "history"} & {*rolling.status}) == (10, set())
    rolling.roll_out()

    began = dict(rolling.rollout)
    assert began["fromRevision"] == before != began["toRevision"]
    assert {name: began[name] for name in ("nodes", "nodesLeft", "atATime", "wave", "waves")} == {
        "nodes": 11,
        "nodesLeft": 11,
        "atATime": 2,
        "wave": 1,
        "waves": 6,
    }
    assert began["nextNodes"] == ["n01", "n02", "n03", "n04", "n05"]
    rolling.play(lambda: rolling.rollout.get("nodesLeft") == 7)
    assert (rolling.rollout["wave"], rolling.rollout["nodes"]) == (3, 11)
    assert rolling.rollout["startedAt"] == began["startedAt"]
    assert "n05" in rolling.rollout["nextNodes"]
    rolling.finish()
    assert rolling.status["currentRevision"] == began["toRevision"]


def test_a_rollout_that_ended_is_in_the_history() -> None:
    rolling = Rolling()
    before = rolling.status["currentRevision"]
    rolling.roll_out()
    began = rolling.rollout
    rolling.finish()

    (entry,) = rolling.history
    assert entry == {
        "fromRevision": before,
        "toRevision": rolling.status["currentRevision"],
        "startedAt": began["startedAt"],
        "endedAt": entry["endedAt"],
        "result": "Complete",
        "nodes": 6,
        "seconds": entry["seconds"],
        "atATime": 2,
    }
    assert at(entry["endedAt"]) - at(entry["startedAt"]) == timedelta(seconds=entry["seconds"])


def test_the_history_has_the_last_ten() -> None:
    rolling = Rolling("n1")
    for number in range(HISTORY_SIZE + 3):
        rolling.roll_out(f"proxy:{number + 2}")
        rolling.finish()

    assert len(rolling.history) == HISTORY_SIZE
    assert rolling.history[0]["toRevision"] == rolling.status["currentRevision"]
    assert [each["endedAt"] for each in rolling.history] == sorted(
        (each["endedAt"] for each in rolling.history), reverse=True
    )
    for later, earlier in zip(rolling.history, rolling.history[1:], strict=False):
        assert later["fromRevision"] == earlier["toRevision"]


def begun() -> Rolling:
    """Two of six nodes have the second template."""
    rolling = Rolling()
    rolling.roll_out()
    rolling.play(lambda: rolling.rollout["nodesLeft"] == 4)
    return rolling


def test_another_template_supersedes_the_rollout() -> None:
    rolling = begun()
    first = rolling.rollout
    rolling.world.retemplate("proxy:3")
    rolling.turn()

    (entry,) = rolling.history
    assert (entry["result"], entry["nodes"], entry["toRevision"]) == ("Superseded", 2, first["toRevision"])
    assert rolling.rollout["nodes"] == 6
    assert rolling.rollout["fromRevision"] == first["fromRevision"]
    rolling.finish()
    assert [each["result"] for each in rolling.history] == ["Complete", "Superseded"]


@pytest.mark.parametrize("paused", [False, True])
def test_an_aborted_rollout_returns_from_the_template_that_nodes_have(paused: bool) -> None:
    rolling = begun()
    first = rolling.rollout
    rolling.world.raw["spec"]["paused"] = paused
    rolling.turns(20 if paused else 0)
    rolling.world.raw["spec"]["paused"] = False
    rolling.world.retemplate("proxy:1")
    rolling.turns(2)

    returning = (rolling.rollout["fromRevision"], rolling.rollout["toRevision"])
    assert returning == (first["toRevision"], first["fromRevision"])


def test_templates_that_no_node_got_are_not_in_the_history() -> None:
    rolling = Rolling()
    rolling.roll_out("proxy:2")
    for number in range(3, 9):
        rolling.world.retemplate(f"proxy:{number}")
        rolling.turn()
    rolling.finish()

    assert [each["result"] for each in rolling.history] == ["Complete"]


def test_a_template_that_is_withdrawn_before_a_pod_is_touched_is_no_rollout_that_was_complete() -> None:
    """As in a closed window, or while nodes are being detached."""
    rolling = Rolling()
    rolling.roll_out("proxy:2")
    rolling.world.retemplate("proxy:1")
    rolling.finish()

    assert rolling.history == []
    rolling.roll_out("proxy:3")
    ends = at(rolling.rollout["estimatedEnd"])
    assert ends - rolling.world.now > timedelta(seconds=100), "as if nothing was measured"


def test_a_template_that_is_withdrawn_later_was_not_complete() -> None:
    """Nor where the nodes are back before a status says that they are to return."""
    rolling = begun()
    stored = rolling.status
    rolling.world.retemplate("proxy:1")
    rolling.finish()
    rolling.world.raw["status"] = stored
    rolling.turn()

    assert [(each["result"], each["nodes"]) for each in rolling.history] == [("Superseded", 2)]


def test_a_pause_ends_it_and_the_rest_is_a_rollout_of_its_own() -> None:
    rolling = begun()
    rolling.world.raw["spec"]["paused"] = True
    rolling.turn()

    assert "rollout" not in rolling.status
    assert (rolling.history[0]["result"], rolling.history[0]["nodes"]) == ("Paused", 2)
    rolling.world.later(3600)
    rolling.world.raw["spec"]["paused"] = False
    rolling.play(lambda: rolling.rollout)
    assert rolling.rollout["nodes"] == 4
    rolling.finish()
    assert rolling.history[0]["result"] == "Complete"
    assert rolling.history[0]["seconds"] < 600


def test_nodes_that_have_left_are_not_said_to_be_updated() -> None:
    rolling = begun()
    for name in ("n5", "n6"):
        del rolling.world.nodes[name], rolling.world.deployments[f"web-{name}"]
    rolling.turn()
    rolling.world.raw["spec"]["paused"] = True
    rolling.turn()

    assert (rolling.history[0]["result"], rolling.history[0]["nodes"]) == ("Paused", 2)


def test_new_nodes_are_no_rollout() -> None:
    rolling = Rolling()
    other = World(raw_resource(), "n9").nodes
    rolling.world.nodes |= other
    rolling.play(lambda: "web-n9" in rolling.world.deployments)
    rolling.play(lambda: rolling.status["readyNodes"] == 7)

    assert "rollout" not in rolling.status
    assert rolling.history == []


def test_a_node_that_is_attached_after_a_drain_is_no_rollout() -> None:
    rolling = Rolling()
    rolling.world.taint("n1", "ToBeDeletedByClusterAutoscaler")
    rolling.play(lambda: rolling.world.off() == {"n1"})
    rolling.world.taint("n1")
    rolling.play(lambda: not rolling.world.off())

    assert not any("rollout" in each or "history" in each for each in rolling.statuses)


ZONES = {"byLabel": "zone", "pause": {"durationSeconds": 60}}
CANARY = {"nodes": 1, "pause": {"durationSeconds": 600}}
LATE = 90
"""Seconds after which something else writes the timestamp of a detachment."""
CONFIRMED = {"waitForDetachmentByAnnotatedTimestamp": {"key": TIMESTAMP, "gracePeriodSeconds": 5}}


class Confirmed(Rolling):
    """Each detachment takes its time."""

    def turn(self) -> None:
        for held in (node["metadata"]["annotations"] for node in self.world.nodes.values()):
            marks = holders_of(held).values()
            since = next((mark.at for mark in marks), self.world.now)
            if not marks:
                held.pop(TIMESTAMP, None)
            elif self.world.now - since >= timedelta(seconds=LATE):
                held.setdefault(TIMESTAMP, self.world.now.isoformat())
        super().turn()


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({}, id="two nodes at a time"),
        pytest.param({"maxUnavailableNodes": 1}, id="one node at a time"),
        pytest.param({"attachGracePeriodSeconds": 30}, id="a grace after the attachment"),
        pytest.param({"waves": ZONES}, id="waves"),
        pytest.param({"canary": CANARY}, id="a canary with a pause"),
        pytest.param({"canary": CANARY, "waves": ZONES}, id="a canary before waves"),
        pytest.param(CONFIRMED, id="others take their time to detach"),
    ],
)
def test_the_end_is_that_of_a_forecast_and_what_happens(parts: Raw) -> None:
    """So that the page, the command and a simulation have one end for one rollout."""
    rolling = Confirmed(rolling=parts)
    for number, each in enumerate(rolling.world.nodes.values()):
        each["metadata"]["labels"] = {"zone": f"z{number % 3}"}
    rolling.roll_out()
    rolling.finish()
    rolling.world.retemplate("proxy:3")
    snapshot = rolling.world.snapshot()
    foreseen = forecast(snapshot, pace_of(snapshot.rollouts())).ends_at
    rolling.turn()
    ends, began = at(rolling.rollout["estimatedEnd"]), rolling.world.now
    rolling.finish()

    assert foreseen
    tolerated = (rolling.world.now - began) * 0.15 + timedelta(seconds=10)
    assert abs(ends - foreseen) <= tolerated
    assert abs(ends - rolling.world.now) <= tolerated


def test_the_end_is_not_known_before_a_person_promotes_the_canary() -> None:
    rolling = Rolling(rolling={"canary": {"nodes": 1}})
    rolling.roll_out()
    assert "estimatedEnd" not in rolling.rollout
    rolling.play(lambda: rolling.canary.get("completeSince"))
    rolling.promote()
    rolling.turns(2)

    assert "estimatedEnd" in rolling.rollout


def test_no_end_is_said_of_a_rollout_whose_node_takes_far_longer() -> None:
    """It may be stuck, which is known only at its deadline; that it ends in a few seconds is not true."""
    rolling = Rolling(progressDeadlineSeconds=99999)
    rolling.roll_out()
    rolling.finish()
    rolling.pods = 99999
    rolling.roll_out("proxy:3")
    assert "estimatedEnd" in rolling.rollout
    for _ in range(100):
        rolling.turn()

    assert "estimatedEnd" not in rolling.rollout


def test_no_end_is_said_of_a_rollout_that_is_further_away_than_a_clock_reaches() -> None:
    endless = {"annotateNodeToDetach": {"key": DETACHED, "gracePeriodSeconds": 2**31 - 1}}
    nodes = (f"n{number}" for number in range(120))
    rolling = Rolling(*nodes, rolling={"maxUnavailableNodes": 1, **endless})
    rolling.roll_out()

    assert "estimatedEnd" not in rolling.rollout


@pytest.mark.parametrize("written", [{"took": 10**400}, {"waited": 10**400}, {"waited": -(10**400)}])
def test_a_duration_that_is_written_by_hand_is_not_measured(written: Raw) -> None:
    rolling = begun()
    annotations = rolling.world.annotations_on("n1")
    annotations[APPLIED_TEMPLATE] = json.dumps(json.loads(annotations[APPLIED_TEMPLATE]) | written)
    rolling.turn()
    assert at(rolling.rollout["estimatedEnd"]) - rolling.world.now < timedelta(hours=1)
    rolling.finish()


CANARY_OF_A_WEEK = {"nodes": 1, "pause": {"durationSeconds": 604800}}


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:50Z", "9999-12-25T00:00:00Z", "0001-01-01T00:00:00Z"])
@pytest.mark.parametrize("parts", [{}, {"attached": True, "put": False}])
@pytest.mark.parametrize(
    "rolling", [{"window": {"start": "00:00", "durationSeconds": 60}}, {"canary": CANARY_OF_A_WEEK}]
)
def test_a_mark_from_the_end_of_all_times_ends_no_reconcile(moment: str, parts: Raw, rolling: Raw) -> None:
    here = Rolling(rolling=rolling)
    here.world.annotations_on("n1")[SCHEDULED] = json.dumps({"at": moment} | parts)
    here.world.retemplate("proxy:2")
    here.turns(3)

    assert here.rollout["nodesLeft"] == 6


LOST_PODS: Raw = {"reason": "it has lost pods with the new template"}
STORED: list[tuple[str, Raw]] = [
    ("failures", {"nodes": {"n1": LOST_PODS | {"wellSince": "9999-12-31T23:59:59Z"}}}),
    ("failures", {"nodes": {"n1": LOST_PODS | {"since": "9999-12-31T23:59:59Z", "seconds": 60}}}),
    ("canary", {"completeSince": "9999-12-31T23:59:59Z"}),
    ("waves", {"completedAt": "9999-12-31T23:59:59Z"}),
]


@pytest.mark.parametrize(("part", "written"), STORED)
def test_a_stored_time_from_the_end_of_all_times_ends_no_reconcile(part: str, written: Raw) -> None:
    pause = {"pause": {"durationSeconds": 60}}
    pacing = {"canary": {"nodes": 1} | pause, "waves": {"byLabel": "zone"} | pause}
    here = Rolling(rolling={part: pacing[part]} if part in pacing else {})
    here.roll_out()
    here.turns(3)
    digest = {"digest": here.rollout["digest"]} if part == "failures" else {}
    here.world.raw["status"][part] = here.status.get(part, {}) | digest | written
    here.turns(3)

    assert here.rollout["nodesLeft"] > 0


def test_an_estimate_takes_no_memory_for_a_budget_of_more_nodes_than_there_are() -> None:
    endings = list[str]()
    for budget in (6, 10**15):
        rolling = Rolling(rolling={"maxUnavailableNodes": budget})
        rolling.roll_out()
        endings.append(rolling.rollout["estimatedEnd"])
        rolling.finish()

    assert len({*endings}) == 1


def test_what_nobody_knows_is_not_estimated() -> None:
    rolling = Rolling("n1", "n2", "n3")
    for name in ("n1", "n2"):
        rolling.world.nodes[name]["spec"]["unschedulable"] = True
        rolling.world.set_ready(name, False)
    rolling.world.raw["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailableNodes"] = 1
    rolling.world.retemplate("proxy:2")
    rolling.play(lambda: rolling.rollout)
    reasons = {each["type"]: each["reason"] for each in rolling.status["conditions"]}

    assert reasons["Progressing"] == "WaitingForNodes"
    assert rolling.rollout["nodesLeft"] == 3
    assert "estimatedEnd" not in rolling.rollout


def test_a_revision_is_named_as_its_controller_revision_is() -> None:
    rolling = Rolling("n1")
    named = body_of(resource(rolling.world.raw))["metadata"]["name"]

    assert named == f"web-{rolling.status['currentRevision']}"
