"""Pods without local room are allowed on super nodes, in place, and cost less to delete."""

from __future__ import annotations

from typing import Any

import pytest

from api.elasticity import BURST, COST, OUR_COST, REASON, TAINT_KEY
from controllers.elasticity.nodes import sorted_out
from controllers.elasticity.patches import cost_change
from controllers.elasticity.pods import decode
from controllers.elasticity.reporter import PODS_BY_STATE
from settings import ElasticitySettings
from settings.elasticity import Budget, MaxSuperPods
from tests.elasticity_world import AWAY, HOME, World, node, raw_of, raw_pod, super_node
from tests.factories import NOW
from tests.tables import table

# Bursts


def tolerates(world: World, name: str) -> bool:
    return any(each["key"] == TAINT_KEY for each in world.cluster.pods[name]["spec"].get("tolerations", ()))


def test_one_of_the_first_n_may_burst_when_home_is_full() -> None:
    world = World()
    (name,) = world.create(1)
    world.leader.settle()
    world.no_room(name)
    world.leader.settle()
    assert world.annotations(name)[BURST] == "allowed"
    world.bind(name, AWAY)
    world.leader.settle()
    assert [PODS_BY_STATE.labels(each)._value.get() for each in ("local", "super")] == [0, 1]
    (next_one,) = world.create(1, n="1")
    world.leader.settle()

    assert world.annotations(next_one)["drawbridge.io/placement"] == "local"


def test_namespaces_that_are_no_longer_excluded_are_reconciled_again() -> None:
    world = World(settings=ElasticitySettings(excluded_namespaces=("shop",)))
    name = world.stuck()
    world.leader.settle()
    assert not tolerates(world, name)
    world.leader.settings = ElasticitySettings()
    world.leader.settle()

    assert tolerates(world, name)


def test_a_fixed_ip_that_is_given_up_keeps_no_pod_off_super_nodes() -> None:
    world = World()
    name = world.stuck(annotations={"cni.projectcalico.org/ipAddrs": '["10.0.0.1"]'})
    world.leader.settle(1)
    assert not tolerates(world, name)
    world.cluster.edit(name, {"metadata": {"annotations": {"cni.projectcalico.org/ipAddrs": None}}})
    world.leader.settle()

    assert tolerates(world, name)


@pytest.mark.parametrize("has_ended", [True, False])
def test_a_pod_waits_for_a_preemption_while_that_makes_room(has_ended: bool) -> None:
    world = World()
    (victim,) = world.create(1, "victim", n=None, gated=False)
    world.bind(victim, HOME)
    name = world.stuck()
    world.cluster.edit(name, {"status": {"nominatedNodeName": HOME}})
    world.leader.settle(10)
    assert not tolerates(world, name)

    leaves = {"deletionTimestamp": NOW.isoformat(), "deletionGracePeriodSeconds": 60}
    world.cluster.edit(victim, {"metadata": leaves})
    world.leader.settle(20)
    assert not tolerates(world, name)

    if has_ended:
        world.cluster.remove(victim)  # and another pod takes its place, of which the status says nothing
        world.leader.settle(2)
    else:
        world.leader.settle(6)  # its machine hangs, or a finalizer holds it
    assert tolerates(world, name)


def test_a_pod_that_waits_for_a_cap_no_longer_says_so_when_it_waits_for_a_node() -> None:
    none = MaxSuperPods(budgets=(Budget(max_pods=0),))
    world = World(settings=ElasticitySettings(max_super_pods=none))
    name = world.stuck()
    world.leader.settle()
    assert PODS_BY_STATE.labels("capped")._value.get() == 1

    world.leader.settings = ElasticitySettings()
    world.leader.set_nodes(sorted_out([node(HOME), super_node(unschedulable=True)]))
    world.leader.settle()
    assert (
        world.annotations(name)[REASON]
        == "No local node has room, and no super node is schedulable: it waits"
    )
    assert PODS_BY_STATE.labels("capped")._value.get() == 0


# Deletion costs

OURS = {COST: "-100", OUR_COST: "-100"}
GONE = dict.fromkeys(OURS)


@table(
    "node, parts, change",
    {
        "away without one gets ours": (AWAY, {}, OURS),
        "without an owner it needs none": (AWAY, {"owned": False}, {}),
        "away with ours keeps it": (AWAY, {"annotations": OURS}, {}),
        "the user's stays": (AWAY, {"annotations": {COST: "7"}}, {}),
        "ours that the user changed stays": (AWAY, {"annotations": {COST: "7", OUR_COST: "-100"}}, {}),
        "ours that the user took away stays away": (AWAY, {"annotations": {OUR_COST: "-100"}}, {}),
        "ours goes local": (HOME, {"annotations": OURS}, GONE),
        "the user's stays local": (HOME, {"annotations": {COST: "-100"}}, {}),
        "none local": (HOME, {}, {}),
    },
)
def test_the_cost_follows_the_node_unless_the_user_gave_one(
    node: str, parts: dict[str, Any], change: dict[str, Any]
) -> None:
    raw = raw_pod("web-1", gated=False, spec={"nodeName": node}, **parts)

    patch = cost_change(decode(raw_of(raw)), frozenset({AWAY}))
    assert (patch["metadata"]["annotations"] if patch else {}) == change


def test_the_order_can_be_left_to_chance_and_taken_up_later() -> None:
    world = World(settings=ElasticitySettings(scale_in_order=False))
    (name,) = world.create(1, n="0")
    world.leader.settle()
    world.bind_all()
    world.leader.settle()
    assert COST not in world.annotations(name)
    world.leader.settings = ElasticitySettings()
    world.leader.settle()

    assert world.annotations(name)[COST] == "-100"


@table(
    "report, fault",
    {"the kubelet reported before": ({"podIP": "10.0.0.1"}, ""), "it was refused": ({}, "forbidden")},
)
def test_a_cost_that_did_not_arrive_is_written_again(report: dict[str, str], fault: str) -> None:
    """Of a pod that has come to a super node for want of room local."""
    world = World()
    [name] = world.create(gated=False, n=None)
    world.bind(name, AWAY)
    world.leader.decide()
    assert len(world.leader.queue) == 1
    if report:
        world.cluster.edit(name, {"status": report})
        world.leader.hear()
    world.leader.let_go(fault=fault)
    world.leader.settle()

    assert world.annotations(name)[COST] == OURS[COST]
