"""The nodes with one value of a label are done, and a pause is over, before those with the next one begin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from api.ingress_daemonset import UPDATE_NOW
from tests.ingress_daemonset_rolling import STEPS, Rolling, Rollouts, at
from tests.ingress_daemonset_world import is_ready

Raw = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
ZONES = {"n1": "b", "n2": "a", "n3": "b", "n4": "a", "n5": "c"}
PAUSED = {"byLabel": ZONE, "pause": {"durationSeconds": 600}}


def rolling_with(zones: dict[str, str], waves: Raw = PAUSED, **rolling: Any) -> Rolling:
    here = Rolling(*zones, rolling={"waves": waves, **rolling})
    for name, zone in zones.items():
        label(here, name, zone)
    return here


def begun(zones: dict[str, str] = ZONES, waves: Raw = PAUSED, **rolling: Any) -> Rolling:
    here = rolling_with(zones, waves, **rolling)
    here.roll_out()
    return here


def label(here: Rolling, name: str, zone: str) -> None:
    here.world.nodes[name]["metadata"]["labels"] = {ZONE: zone} if zone else {}


def order(here: Rolling) -> list[set[str]]:
    """The nodes in groups that were updated between two pauses."""
    found: list[set[str]] = []
    while here.rollout:
        here.play(lambda: here.reason == "WavePaused" or not here.rollout)
        found.append(here.updated() - {name for group in found for name in group})
        here.play(lambda: here.reason != "WavePaused")
    return found


@pytest.mark.parametrize(
    ("zones", "waves"),
    [
        (ZONES, [{"n2", "n4"}, {"n1", "n3"}, {"n5"}]),
        ({**ZONES, "n2": "", "n5": ""}, [{"n4"}, {"n1", "n3"}, {"n2", "n5"}]),
        ({"n1": "10", "n2": "9", "n3": "9a"}, [{"n1"}, {"n2"}, {"n3"}]),
        ({"n1": "", "n2": ""}, [{"n1", "n2"}]),
        ({"n1": "a", "n2": "a"}, [{"n1", "n2"}]),
    ],
)
def test_waves_follow_in_the_order_of_their_values_and_nodes_without_one_come_last(
    zones: dict[str, str], waves: list[set[str]]
) -> None:
    here = begun(zones)

    assert order(here) == waves
    assert "waves" not in here.status
    said = [message for reason, message in here.events() if reason == "WavePaused"]
    assert ["is complete" in each for each in said] == [True] * (len(waves) - 1)


def test_no_node_begins_before_the_pause_is_over() -> None:
    here = begun()
    here.play(lambda: here.reason == "WavePaused")
    completed = at(here.status["waves"]["completedAt"])
    assert here.world.plan().requeue_at == completed + timedelta(seconds=600)
    assert "wave a is complete; wave b begins at" in here.message
    here.play(lambda: here.world.off())

    assert here.world.now - completed >= timedelta(seconds=600)


def test_the_status_says_which_wave_it_is_and_when_it_ends() -> None:
    here = begun()
    here.turn()
    here.play(lambda: here.rollout.get("wave") == 2)
    assert (here.rollout["waves"], here.status["waves"]["current"]) == (3, "b")
    assert here.status["waves"]["next"] == ["c"]
    assert here.rollout["nextNodes"][-1] == "n5"
    ends = at(here.rollout["estimatedEnd"])
    here.finish()

    assert abs(here.world.now - ends) < timedelta(seconds=180)


def test_a_node_of_the_first_wave_stays_detached_for_another_template() -> None:
    here = begun(maxUnavailableNodes=1)
    here.pods = 0
    here.play(here.world.off)
    detached = here.world.off()
    here.world.retemplate("proxy:3")
    while not here.updated("proxy:3"):
        here.turn()
        assert here.world.off() == detached


def test_a_pause_is_no_part_of_any_deadline() -> None:
    here = rolling_with(ZONES, {"byLabel": ZONE, "pause": {"durationSeconds": 9999}})
    here.world.raw["spec"]["progressDeadlineSeconds"] = 60
    here.roll_out()
    here.play(lambda: here.reason == "WavePaused")
    here.world.later(5000)
    here.turn()

    assert here.reason == "WavePaused"
    conditions = {each["type"]: each["status"] for each in here.status["conditions"]}
    assert conditions["Degraded"] == "False"


def test_waves_follow_the_canary_and_its_nodes_are_done() -> None:
    here = begun(canary={"nodes": 1})
    here.play(lambda: here.reason == "CanaryPaused")
    assert here.updated() == {"n1"}
    assert "waves" not in here.status
    here.promote()
    here.play(lambda: here.reason == "WavePaused")
    assert here.updated() == {"n1", "n2", "n4"}

    here.finish()
    assert here.updated() == {*ZONES}


def test_the_way_back_to_the_former_template_waits_for_no_wave() -> None:
    here = begun()
    here.play(lambda: here.reason == "WavePaused" and here.status["waves"]["current"] == "b")
    here.world.retemplate("proxy:1")
    began = here.world.now
    here.play(lambda: not here.updated() and not here.rollout)

    assert here.world.now - began < timedelta(seconds=590)


def test_a_node_whose_label_changes_is_of_the_wave_of_its_new_value() -> None:
    here = begun()
    here.play(lambda: here.reason == "WavePaused")
    label(here, "n1", "c")
    here.play(lambda: here.reason == "WavePaused" and here.status["waves"]["current"] == "b")
    assert here.updated() == {"n2", "n4", "n3"}
    label(here, "n5", "a")
    here.play(lambda: here.reason != "WavePaused")
    here.play(lambda: here.reason == "WavePaused" or not here.rollout)

    assert here.updated() == {"n2", "n4", "n3", "n5"}
    here.finish()
    assert here.updated() == {*ZONES}


def test_a_node_under_way_whose_label_changes_is_completed() -> None:
    here = begun()
    here.play(lambda: here.updated())
    [name, *_] = here.updated()
    label(here, name, "c")
    here.play(lambda: here.reason == "WavePaused")

    assert name in here.updated()
    assert here.world.off() == set()


def test_a_node_that_is_not_ready_holds_up_no_wave_and_is_updated_when_it_is_ready() -> None:
    here = rolling_with(ZONES)
    here.world.set_ready("n2", False)
    here.roll_out()
    here.play(lambda: here.reason == "WavePaused")
    assert here.updated() == {"n4"}
    here.play(lambda: here.updated() >= {"n1", "n3"})
    here.world.set_ready("n2", True)
    here.finish()

    assert here.updated() == {*ZONES}


def test_nodes_that_are_never_ready_are_neither_detached_nor_attached_again_and_again() -> None:
    here = rolling_with(ZONES, maxUnavailableNodes=4)
    for name in ("n2", "n1"):
        here.world.set_ready(name, False)
    here.roll_out()
    here.play(lambda: here.updated() >= {"n3", "n4", "n5"} and here.world.off() & {"n1", "n2"})
    here.pods = 99999
    writes = 0
    for _ in range(100):
        before = here.world.off()
        here.turn()
        writes += here.world.off() != before

    assert writes == 0
    assert here.world.off() == {"n2"}


def test_a_paused_rollout_and_an_urgent_one_keep_their_waves() -> None:
    here = begun()
    here.play(lambda: here.reason == "WavePaused")
    digest = here.rollout["digest"]
    here.annotate(**{UPDATE_NOW: digest})
    here.world.raw["spec"]["paused"] = True
    here.world.later(9999)
    for _ in range(20):
        here.turn()
    assert here.updated() == {"n2", "n4"}
    here.world.raw["spec"]["paused"] = False
    here.play(lambda: here.reason == "WavePaused")

    assert here.updated() == {"n1", "n2", "n3", "n4"}


class InWaves(Rollouts):
    """Whatever happens, no two zones have nodes that begin to get a template at the same time."""

    @initialize(nodes=st.integers(1, 3), seconds=st.sampled_from([0, 60]))
    def begin(self, nodes: int, seconds: int) -> None:
        waves = {"byLabel": ZONE, "pause": {"durationSeconds": seconds}}
        self.here = rolling_with(ZONES, waves, maxUnavailableNodes=nodes)
        self.under_way = set[str]()

    def before_template(self) -> None:
        self.under_way = self.here.world.off()

    @rule(name=st.sampled_from([*ZONES]), ready=st.booleans())
    def lose_or_find_a_node(self, name: str, ready: bool) -> None:
        self.here.world.set_ready(name, ready)

    def turn(self) -> None:
        """The nodes that are detached by it are of one zone, in which or before which no other is unfinished."""
        off = self.here.world.off()
        unfinished = {zone for name, zone in ZONES.items() if self.is_unfinished(name)}
        self.here.turn()
        zones = {ZONES[name] for name in self.here.world.off() - off}
        if unfinished and self.version > 1:
            assert len(zones) <= 1, zones
            assert not off or zones <= {ZONES[name] for name in off} or self.all_given_back(off), (off, zones)

    def all_given_back(self, off: set[str]) -> bool:
        """Those that were detached for the template before, or whose node is lost."""
        return all(name in self.under_way or not self.is_ready(name) for name in off)

    def is_ready(self, name: str) -> bool:
        return is_ready(self.here.world.nodes[name])

    def is_unfinished(self, name: str) -> bool:
        return self.is_ready(name) and self.here.world.image_on(name) != self.image

    @invariant()
    def within_the_budget(self) -> None:
        rolling = self.here.world.raw["spec"]["updateStrategy"]["rollingUpdate"]
        assert len(self.here.world.off()) <= rolling["maxUnavailableNodes"]


InWaves.TestCase.settings = STEPS
TestInWaves = InWaves.TestCase
