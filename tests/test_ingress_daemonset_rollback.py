"""Nodes return to the last template that all of them had, when those with a new one fail; never twice for the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from api.health_checks import State
from tests.ingress_daemonset_rolling import NODES, Rolling
from tests.ingress_daemonset_world import raw_node

BAD = "proxy:bad"
"""The pods of this image never become available."""
DEADLINE = 60


class Returning(Rolling):
    """Templates are kept as the leader keeps them, and pods of BAD never come."""

    def __init__(self, *nodes: str, **parts: Any) -> None:
        rolling = {"autoRollback": True, **parts.pop("rolling", {})}
        super().__init__(*nodes, rolling=rolling, **{"progressDeadlineSeconds": DEADLINE, **parts})

    def _run_pods(self) -> None:
        super()._run_pods()
        for name in self.world.nodes:
            held = self.world.deployments.get(f"web-{name}")
            if held and self.world.image_on(name) == BAD and held.get("status", {}).get("updatedReplicas"):
                generation = held["metadata"]["generation"]
                stuck = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
                held["status"] = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 0}
                held["status"] |= {"observedGeneration": generation, "conditions": [stuck]}


def failed(*nodes: str, **parts: Any) -> Returning:
    """A template whose pods do not come, until all is as it was."""
    here = Returning(*nodes, **parts)
    here.roll_out(BAD)
    here.play(lambda: here.reason == "RolledBack")
    return here


def test_nodes_return_to_the_template_before_and_the_spec_is_left_as_it_is() -> None:
    here = failed()

    assert here.images == {"proxy:1"}
    assert here.world.off() == set()
    assert here.world.raw["spec"]["template"]["spec"]["containers"][0]["image"] == BAD
    assert "did not become available within progressDeadlineSeconds" in here.message
    assert here.status["rollback"]["toRevision"] == here.status["currentRevision"]


def test_a_template_that_failed_is_not_tried_again_whatever_else_changes() -> None:
    here = failed()
    for change in ({"podsPerNode": 3}, {"minReadySeconds": 1}, {"paused": True}, {"paused": False}):
        here.world.raw["spec"] |= change
        here.world.later(99999)
        here.turns(30)
        assert here.images == {"proxy:1"}


def test_the_former_template_in_the_spec_ends_the_rollback_and_then_the_failed_one_is_tried_again() -> None:
    here = failed()
    here.world.retemplate("proxy:1")
    here.play(lambda: here.reason == "Complete")
    assert "rollback" not in here.status

    here.world.retemplate(BAD)
    here.play(lambda: here.reason == "RolledBack")
    assert here.images == {"proxy:1"}


def opt_out(here: Returning) -> None:
    here.world.raw["spec"]["updateStrategy"]["rollingUpdate"]["autoRollback"] = False


def pause(here: Returning) -> None:
    here.world.raw["spec"]["paused"] = True


def lose_nodes(here: Returning) -> None:
    """Those whose pods do not come."""
    for name in here.updated(BAD):
        here.world.set_ready(name, False)


def forget(here: Returning) -> None:
    """The former template."""
    kept = here.world.revisions
    here.world.revisions = dict([max(kept.items(), key=lambda each: each[1]["revision"])])


@pytest.mark.parametrize(
    ("how", "reason"),
    [(opt_out, "Halted"), (pause, "Paused"), (lose_nodes, "WaitingForNodes"), (forget, "Halted")],
)
def test_no_node_returns_and_it_is_said_why(how: Callable[[Returning], None], reason: str) -> None:
    here = Returning("n1", "n2", rolling={"maxUnavailableNodes": 1})
    here.roll_out(BAD)
    here.play(lambda: BAD in here.images)
    how(here)
    here.world.later(99999)
    here.turns()

    assert "rollback" not in here.status
    assert here.reason == reason


def test_a_former_template_that_is_lost_later_pauses_the_return() -> None:
    here = Returning()
    here.roll_out(BAD)
    here.play(lambda: "rollback" in here.status)
    before = [here.world.image_on(name) for name in NODES]
    forget(here)
    here.turns()

    assert here.reason == "Paused"
    assert [here.world.image_on(name) for name in NODES] == before
    assert (
        f"template {here.status['rollback']['toRevision']}, to which nodes return, is not kept"
        in here.message
    )


def test_history_and_events_say_what_happened() -> None:
    here = Returning()
    here.play(lambda: here.reason == "Complete")
    here.statuses = here.statuses[-1:]
    here.roll_out(BAD)
    here.play(lambda: here.reason == "RolledBack")
    events = here.events()

    assert [reason for reason, _ in events] == [
        "RolloutStarted",
        "RolloutHalted",
        "RollbackStarted",
        "RollbackComplete",
    ]
    assert "is not tried again before it changes" in events[2][1]
    assert [each["result"] for each in here.history] == ["Complete", "Halted"]


def test_pods_that_crash_on_a_node_that_was_detached_for_a_drain_halt_the_rollout_after_the_deadline() -> (
    None
):
    here = Returning(rolling={"maxUnavailableNodes": 1, "autoRollback": False})
    here.roll_out()
    here.play(lambda: here.world.image_on("n1") == "proxy:2" and "n1" not in here.world.off())
    here.world.taint("n1", "ToBeDeletedByClusterAutoscaler")
    here.play(lambda: "n1" in here.world.off())
    here.world.set_available("n1", 0)
    here.world.taint("n1")
    began = here.world.now
    while here.reason != "Halted":
        for available in (0, 1):
            here.world.set_available("n1", available)
            here.turn()
        assert here.world.now - began < timedelta(seconds=3 * DEADLINE)

    assert "n1: it has lost pods" in here.message


CANARY = {"canary": {"nodes": 1, "pause": {"durationSeconds": 3600}}}


def paused(**parts: Any) -> Returning:
    here = Returning(rolling=CANARY, **parts)
    here.roll_out()
    here.play(lambda: here.reason == "CanaryPaused")
    return here


def test_a_canary_that_crashes_again_and_again_is_rolled_back_after_the_deadline() -> None:
    here = paused()
    began = here.world.now
    while "rollback" not in here.status:
        for available in (1, 2):
            here.world.set_available("n1", available)
            here.turn()
        assert here.world.now - began < timedelta(seconds=3 * DEADLINE)
    here.play(lambda: here.reason == "RolledBack")

    assert here.images == {"proxy:1"}
    assert "n1: it has lost pods with the new template" in here.status["rollback"]["reason"]


def crashed(**parts: Any) -> Returning:
    """n1 has lost pods with a template that is corrected when it has them again; n0 has joined meanwhile."""
    here = Returning(rolling={"maxUnavailableNodes": 1, "autoRollback": False})
    here.roll_out()
    here.play(lambda: here.world.image_on("n1") == "proxy:2" and "n1" not in here.world.off())
    here.world.set_available("n1", 1)
    here.world.nodes["n0"] = raw_node("n0")
    here.play(lambda: "failures" in here.status and here.status["readyNodes"] == len(NODES))
    here.world.set_available("n1", 2)
    here.world.raw["spec"]["updateStrategy"]["rollingUpdate"] |= parts
    here.world.retemplate("proxy:3")
    return here


def test_a_corrected_template_replaces_pods_that_were_lost_before_though_they_are_there_again() -> None:
    here = crashed()
    here.play(here.world.off)

    assert here.world.off() == {"n1"}
    here.finish()
    assert here.images == {"proxy:3"}


def test_a_canary_elsewhere_waits_until_such_a_node_has_been_well_for_the_deadline() -> None:
    here = crashed(canary={"nodes": 1, "nodeSelector": {"canary": "true"}})
    here.world.nodes["n3"]["metadata"]["labels"] = {"canary": "true"}
    well_since = here.world.now
    here.play(here.world.off)

    assert here.world.off() == {"n3"}
    assert here.world.now - well_since >= timedelta(seconds=DEADLINE)


def test_a_canary_whose_health_checks_are_never_answered_200_is_rolled_back() -> None:
    here = Returning(rolling={**CANARY, "annotateDeploymentToDetach": {}}, healthCheckNodePorts=[10080])
    rolling = here.world.raw["spec"]["updateStrategy"]["rollingUpdate"]
    rolling |= {"confirm": "preferred", "confirmTimeoutSeconds": 30}
    here.roll_out()
    here.play(lambda: "proxy:2" in here.images)
    here.world.reported["n1"] = State(503, "not serving")
    here.play(lambda: not here.world.off())
    attached = here.world.now
    here.play(lambda: here.reason == "CanaryDegraded")
    assert "answers 503: not serving" in here.message
    here.play(lambda: "rollback" in here.status)
    assert here.world.now - attached <= timedelta(seconds=DEADLINE + 6)
    here.play(lambda: here.reason == "RolledBack")

    assert here.images == {"proxy:1"}


def test_a_canary_whose_health_checks_are_answered_is_read_no_longer() -> None:
    here = Returning(rolling=CANARY, healthCheckNodePorts=[10080])
    here.roll_out()
    here.play(lambda: here.world.plan().unanswered == ("n1",))
    here.play(lambda: here.reason == "CanaryPaused")
    here.turn()

    assert here.world.plan().unanswered == ()


class Faltering(Rolling):
    """Pods of the *lost* node do not come any more."""

    lost = ""

    def _run_pods(self) -> None:
        super()._run_pods()
        if self.lost:
            self.world.set_available(self.lost, 0)


def test_a_return_that_goes_on_beside_a_node_that_fails_is_said_to_be_halted_in_the_end() -> None:
    here = Faltering(pods=3, progressDeadlineSeconds=20)
    here.roll_out("proxy:2")
    here.play(lambda: here.updated() == {*NODES})
    here.world.retemplate("proxy:1")
    here.play(lambda: here.updated() < {*NODES})
    here.lost = next(name for name in NODES if name in here.world.off() and name not in here.updated())
    here.play(lambda: here.reason == "Halted")

    assert here.updated() == set()
