"""A new template goes to the canary, and to the other nodes when that was promoted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from api.ingress_daemonset import PROMOTE
from api.ingress_daemonset.status import Promotion, status_of
from controllers.ingress_daemonset.reporter import news
from tests.ingress_daemonset_rolling import NODES, STEPS, Rolling, Rollouts, at
from tests.ingress_daemonset_world import DETACHED, raw_node

Raw = dict[str, Any]
ONE: Raw = {"nodes": 1}
TIMED: Raw = {"nodes": 1, "pause": {"durationSeconds": 600}}


def rolling_with(canary: Raw, *nodes: str, **spec: Any) -> Rolling:
    return Rolling(*nodes, rolling={"canary": canary}, **spec)


def begun(canary: Raw, *nodes: str, **spec: Any) -> Rolling:
    here = rolling_with(canary, *nodes, **spec)
    here.roll_out()
    return here


def paused(canary: Raw, *nodes: str, **spec: Any) -> Rolling:
    here = begun(canary, *nodes, **spec)
    here.play(lambda: here.reason == "CanaryPaused")
    return here


@pytest.mark.parametrize(
    ("wanted", "labelled", "first"),
    [
        ({"nodes": 1}, (), {"n1"}),
        ({"nodes": 3}, (), {"n1", "n2", "n3"}),
        ({"nodes": "34%"}, (), {"n1", "n2", "n3"}),
        ({"nodes": "1%"}, (), {"n1"}),
        ({"nodes": 99}, ("n2",), {*NODES}),
        ({"nodeSelector": {"canary": "true"}}, ("n4", "n6"), {"n4", "n6"}),
        ({"nodes": 1, "nodeSelector": {"canary": "true"}}, ("n4", "n6"), {"n4"}),
        ({"nodes": "50%", "nodeSelector": {"canary": "true"}}, ("n4", "n6"), {"n4"}),
        ({"nodeSelector": {"canary": "true"}}, (), set()),
    ],
)
def test_the_nodes_of_the_canary_get_the_template_and_no_other(
    wanted: Raw, labelled: tuple[str, ...], first: set[str]
) -> None:
    here = rolling_with(wanted)
    for name in labelled:
        here.label(name, canary="true")
    here.roll_out()
    here.turns()

    assert here.updated() == first
    assert here.world.off() == set()


GRADUAL = {"maxUnavailableNodes": 0, "maxDegradedNodes": 3, "annotateNodeToDetach": None}


@pytest.mark.parametrize(
    ("parts", "nodes"),
    [
        pytest.param({"canary": ONE}, {"n1"}, id="nodes are detached"),
        pytest.param({"canary": {"nodes": 2}, **GRADUAL}, {"n1", "n2"}, id="nodes are not detached"),
    ],
)
def test_a_canary_that_is_promoted_by_hand_is_followed_by_the_others(parts: Raw, nodes: set[str]) -> None:
    here = Rolling(rolling=parts)
    here.roll_out()
    here.play(lambda: here.reason == "CanaryPaused")
    here.turns()
    assert here.updated() == nodes
    assert "drawbridge rollout promote" in here.message

    here.promote()
    here.finish()
    assert here.updated() == {*NODES}
    assert here.canary == {}
    assert [each["result"] for each in here.history] == ["Complete"]


def test_a_canary_is_promoted_when_it_was_as_desired_for_its_whole_pause() -> None:
    here = paused(TIMED)
    since = at(here.canary["completeSince"])
    assert here.world.plan().requeue_at == since + timedelta(seconds=600)
    here.play(lambda: "promotedAt" in here.canary)
    assert here.world.now - since < timedelta(seconds=610)
    assert at(here.canary["promotedAt"]) == since + timedelta(seconds=600)
    assert here.updated() == {"n1"}

    here.finish()
    assert here.updated() == {*NODES}


def test_a_canary_that_loses_pods_is_not_promoted_and_its_pause_begins_again() -> None:
    here = paused(TIMED)
    here.world.later(590)
    here.world.set_available("n1", 1)
    here.turn()
    assert here.reason == "CanaryDegraded"
    assert "n1 is Degraded" in here.message
    here.world.later(99999)
    here.turns(20)
    assert here.updated() == {"n1"}

    here.world.run_pods("n1")
    here.turn()
    began = here.world.now
    here.play(lambda: "promotedAt" in here.canary)
    assert here.world.now - began >= timedelta(seconds=590)


def test_a_template_that_comes_in_the_pause_begins_another_canary() -> None:
    here = paused(ONE)
    first = here.canary["id"]
    here.world.retemplate("proxy:3")
    here.play(lambda: here.canary["id"] != first and here.reason == "CanaryPaused")

    assert len(here.updated("proxy:3")) == 1
    here.promote(first)
    here.turns()
    assert len(here.updated("proxy:3")) == 1
    here.promote()
    here.finish()
    assert here.updated("proxy:3") == {*NODES}


def test_a_promotion_does_not_count_for_a_later_rollout_of_the_same_template() -> None:
    here = paused(ONE)
    here.promote()
    here.finish()
    here.roll_out("proxy:1")
    here.play(lambda: here.reason == "CanaryPaused")
    here.promote()
    here.finish()
    here.roll_out("proxy:2")
    here.turns()

    assert len(here.updated()) == 1


def test_the_former_template_returns_without_a_canary() -> None:
    here = paused(ONE)
    here.world.retemplate("proxy:1")
    here.play(lambda: not here.updated())
    here.play(lambda: here.reason == "Complete")

    assert here.canary == {}


def test_a_node_that_is_drained_in_the_pause_keeps_its_template() -> None:
    here = paused(ONE, "n1", "n2", "n3")
    here.world.taint("n2", "karpenter.sh/disrupted")
    here.turns()
    assert here.world.off() == {"n2"}
    here.world.taint("n2")
    here.turns()

    assert (here.updated(), here.world.off()) == ({"n1"}, set())


def test_a_node_that_gets_no_traffic_is_not_the_canary_while_another_is_left() -> None:
    here = rolling_with(ONE)
    here.world.nodes["n1"]["spec"]["unschedulable"] = True
    here.world.annotate_node("n2", **{DETACHED: "by hand"})
    here.world.raw["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailableNodes"] = 3
    here.roll_out()
    here.turns()

    assert here.updated() == {"n3"}


def ready(here: Rolling, name: str, is_ready: bool) -> None:
    """Its pods are ready as long as it is."""
    here.world.set_ready(name, is_ready)
    here.world.set_available(name, 2 if is_ready else 0)


def join(here: Rolling, name: str, **labels: str) -> None:
    here.world.nodes[name] = raw_node(name, labels=labels)


def test_a_canary_without_a_ready_node_says_so() -> None:
    here = rolling_with({"nodeSelector": {"canary": "true"}}, "n1", "n2", maxUnavailableNodes=2)
    here.label("n1", canary="true")
    ready(here, "n1", False)
    here.roll_out()
    here.turns(10)

    assert (here.updated(), here.reason) == (set(), "WaitingForNodes")
    assert "canary: it has no Ready node" in here.message
    ready(here, "n1", True)
    here.play(lambda: here.reason == "CanaryPaused")
    assert here.updated() == {"n1"}


@pytest.mark.parametrize("wanted", [{"nodes": "34%"}, {"nodeSelector": {"canary": "true"}}])
def test_lost_and_new_nodes_do_not_begin_a_pause_again(wanted: Raw) -> None:
    here = rolling_with({**wanted, "pause": {"durationSeconds": 600}})
    for name in ("n1", "n2", "n3"):
        here.label(name, canary="true")
    here.roll_out()
    here.play(lambda: here.reason == "CanaryPaused")
    since = at(here.canary["completeSince"])
    assert here.updated() == {"n1", "n2", "n3"}

    ready(here, "n1", False)
    for name in ("n0", "n7", "n8", "n9"):
        join(here, name, canary="true")
    here.play(lambda: "promotedAt" in here.canary)
    assert here.world.now - since < timedelta(seconds=610)


def test_where_the_lost_node_has_the_whole_budget_the_reason_is_true() -> None:
    here = paused(ONE)
    here.world.raw["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailableNodes"] = 1
    ready(here, "n1", False)
    here.turns(5)

    assert here.reason == "WaitingForNodes"
    assert "count against maxUnavailableNodes: n1 is NotReady" in here.message


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_node_that_joins_is_not_the_canary(when: str) -> None:
    """It had no other pods, and load balancers send it little yet: nothing would be measured."""
    here = rolling_with(ONE)
    if when == "during":
        here.roll_out()
    join(here, "n0")
    here.roll_out()
    here.play(lambda: here.reason == "CanaryPaused")

    assert here.updated() - {"n0"} == {"n1"}


def test_a_selector_without_nodes_waits_and_says_so() -> None:
    here = begun({"nodeSelector": {"canary": "true"}})
    here.turn()

    assert here.reason == "CanaryPaused"
    assert "no node has the labels" in here.message
    here.promote()
    here.finish()
    assert here.updated() == {*NODES}


def test_a_canary_that_is_taken_out_of_the_spec_lets_the_rollout_go_on() -> None:
    here = paused(ONE)
    del here.world.raw["spec"]["updateStrategy"]["rollingUpdate"]["canary"]
    here.finish()

    assert here.updated() == {*NODES}


def test_events_say_that_a_canary_is_paused_and_how_it_was_promoted() -> None:
    here = rolling_with(TIMED)
    here.play(lambda: here.reason == "Complete")
    here.statuses = here.statuses[-1:]
    here.roll_out()
    here.finish()
    events = here.events()
    reasons = [each for each, _ in events]
    assert reasons == ["RolloutStarted", "CanaryPaused", "CanaryPromoted", "RolloutComplete"]
    assert "after its pause" in dict(events)["CanaryPromoted"]


WAITING = {"id": "a-1", "revision": "a", "nodes": 1}
STORED = {**WAITING, "promotedAt": "2026-01-01T00:00:00Z", "promotedBy": Promotion.BY_HAND}


@pytest.mark.parametrize(
    ("old", "new", "by_hand", "events"),
    [
        pytest.param(WAITING, STORED, "a-1", ["CanaryPromoted"], id="it is stored that it was promoted"),
        pytest.param(STORED, {}, "a-1", [], id="it was stored before"),
        pytest.param(WAITING, {}, "a-1", ["CanaryPromoted"], id="the others were done before it was stored"),
        pytest.param(WAITING, {}, "", [], id="it ended without"),
        pytest.param(WAITING, {}, "a-0", [], id="another one was promoted"),
        pytest.param({}, {}, "a-1", [], id="there was none"),
    ],
)
def test_a_promotion_is_said_once_also_when_the_other_nodes_are_fast(
    old: Raw, new: Raw, by_hand: str, events: list[str]
) -> None:
    rolling = {"conditions": [{"type": "Progressing", "reason": "Updating", "message": ""}]}
    was, now = (status_of(rolling | ({"canary": raw} if raw else {})) for raw in (old, new))
    found = news(was, now, by_hand)

    assert [reason_ for reason_, _, _ in found] == events


class Canaries(Rollouts):
    """Whatever happens, no more nodes than the canary has get a template that was not promoted."""

    @initialize(nodes=st.integers(1, 3), size=st.integers(1, 4), seconds=st.sampled_from([0, 60]))
    def begin(self, nodes: int, size: int, seconds: int) -> None:
        self.size, self.under_way = size, set[str]()
        self.here = rolling_with({"nodes": size, "pause": {"durationSeconds": seconds}}, *NODES[:5])
        self.here.world.raw["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailableNodes"] = nodes

    def before_template(self) -> None:
        """Nodes whose pods are being replaced by then have no others: they get the newest template at once."""
        self.under_way = self.here.world.off() & (self.under_way | self.here.updated(self.image))

    @rule()
    def promote(self) -> None:
        if "id" in self.here.canary and "promotedAt" not in self.here.canary:
            self.here.promote()

    @rule(name=st.sampled_from(NODES[:5]), cordoned=st.booleans())
    def cordon(self, name: str, cordoned: bool) -> None:
        self.here.world.nodes[name]["spec"]["unschedulable"] = cordoned

    @rule(name=st.sampled_from(NODES[:5]))
    def lose_a_pod(self, name: str) -> None:
        self.here.world.set_available(name, 1)

    @invariant()
    def no_more_nodes_than_the_canary_has(self) -> None:
        if self.version == 1 or not (found := self.here.canary):
            return
        if "promotedAt" in found or found.get("id") == self.here.world.raw["metadata"].get(
            "annotations", {}
        ).get(PROMOTE):
            return
        deployments, updated = self.here.world.deployments, self.here.updated(self.image)
        short = {
            name for name in updated if deployments[f"web-{name}"]["status"].get("availableReplicas") != 2
        }
        assert len(updated) <= max(self.size, len(updated & (self.under_way | short)))


Canaries.TestCase.settings = STEPS
TestCanaries = Canaries.TestCase
