"""Pods that super nodes do not take: those that are not ready, and those that have no room."""

from __future__ import annotations

import pytest

from controllers.elasticity.nodes import Nodes, sorted_out
from kube.types import INSTANCE_TYPE, SUPER_NODE
from settings import ElasticitySettings
from settings.elasticity import HomeFailover, MaxSuperPods
from tests.elasticity_world import AWAY, HOME, World, fleet, node, super_node
from tests.tables import table

# Super nodes that are not ready

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
OUT = sorted_out([node(HOME), super_node(taints=[NOT_READY])])
ONE_AWAY = ElasticitySettings(enabled=True, max_super_pods=MaxSuperPods(total=1))
WAITS = "waits for 60 s at most, no super node is without taint node.kubernetes.io/not-ready:NoSchedule"


def pass_by(world: World, seconds: float, nodes: Nodes) -> None:
    """The leader takes a turn every five *seconds*."""
    world.leader.nodes = nodes
    world.pass_by(seconds)


def full(world: World) -> list[str]:
    """A pod that has the only place on super nodes, and one that has waited for it for long."""
    first, second = world.create(2, n="0")
    pass_by(world, 300.0, fleet())
    assert world.cluster.names(lambda pod: pod.gated) == [second]
    return [first, second]


def is_gated(world: World, name: str) -> bool:
    return world.cluster.pod(name).gated


def reason(world: World, name: str) -> str:
    return world.annotations(name)["drawbridge.io/placement-reason"]


@pytest.mark.parametrize("ahead", [0.0, 300.0, -300.0])
def test_a_new_pod_waits_a_minute_and_is_local_then(ahead: float) -> None:
    world = World(nodes=OUT, ahead=ahead)
    pass_by(world, 120.0, OUT)
    (name,) = world.create(1, n="0")
    pass_by(world, 55.0, OUT)
    assert is_gated(world, name)
    assert any(message.endswith(WAITS) for _, message in world.leader.recorder.events)
    pass_by(world, 15.0, OUT)

    assert world.placements() == {"local": 1}
    assert "stays local, no super node is without taint" in reason(world, name)


def test_a_pod_that_has_waited_for_its_place_for_long_waits_for_super_nodes_too() -> None:
    world = World(settings=ONE_AWAY)
    first, second = full(world)
    pass_by(world, 30.0, OUT)
    assert is_gated(world, second)
    world.cluster.remove(first)
    pass_by(world, 10.0, fleet())

    assert world.placements() == {"super": 1}


def test_each_time_they_are_not_ready_counts_by_itself() -> None:
    world = World(settings=ONE_AWAY)
    _, second = full(world)
    for _ in range(3):
        pass_by(world, 40.0, OUT)
        pass_by(world, 10.0, fleet())

    assert is_gated(world, second)


def test_of_several_super_nodes_the_one_that_is_not_ready_for_the_shortest_time_counts() -> None:
    world = World(settings=ONE_AWAY)
    _, second = full(world)
    other = super_node("eklet-subnet-2", taints=[NOT_READY])
    pass_by(world, 50.0, OUT)
    pass_by(world, 40.0, sorted_out([*OUT.super, *OUT.local, other]))
    assert is_gated(world, second)
    pass_by(world, 30.0, sorted_out([*OUT.super, *OUT.local, other]))

    assert not is_gated(world, second)


def test_a_pod_that_does_not_fit_them_when_they_are_ready_does_not_wait() -> None:
    world = World(nodes=OUT)
    (name,) = world.create(1, n="0", spec={"nodeSelector": {"gpu": "yes"}})
    pass_by(world, 5.0, OUT)

    assert world.placements() == {"local": 1}
    assert "has gpu=yes" in reason(world, name)


# Failover to local nodes

ON = ElasticitySettings(home_failover=HomeFailover.model_validate({"enabled": True, "homeAfter": "5m"}))


def stranded(behind: float = 0.0, **parts: object) -> tuple[World, str]:
    world = World(settings=ON)
    (name,) = world.create(1, n="0", **parts)
    world.leader.settle()
    world.no_room(name, behind)
    world.leader.settle(1)
    return world, name


@pytest.mark.parametrize("behind", [0.0, 300.0, -300.0])
def test_it_is_given_up_after_a_while_and_its_successor_stays_local(behind: float) -> None:
    world, name = stranded(behind)
    world.clock.advance(299.0 - 10.0)
    world.leader.settle(1)
    assert name in world.cluster.pods
    world.leader.settle(2)
    assert name not in world.cluster.pods
    (successor,) = world.create(1, n="0")
    world.leader.settle()

    assert world.annotations(successor)["drawbridge.io/placement"] == "local"
    assert world.leader.recorder.reasons == ["AllowedHomeAgain"] * 2


def test_super_nodes_are_tried_again_later() -> None:
    world, _ = stranded()
    world.clock.advance(300.0)
    world.leader.settle()
    world.clock.advance(300.0)
    world.create(1, n="0")
    world.leader.settle()

    assert world.placements() == {"super": 1}


@table(
    "parts",
    {
        "nothing would replace it": {"owned": False},
        "its replacement could run nowhere else": {"spec": {"nodeSelector": {INSTANCE_TYPE: SUPER_NODE}}},
    },
)
def test_these_are_never_deleted(parts: dict[str, object]) -> None:
    world, name = stranded(**parts)
    world.clock.advance(3600.0)
    world.leader.settle()

    assert name in world.cluster.pods
    assert world.leader.recorder.reasons == ["NotTakenBySuperNode"]


def test_a_pod_that_found_its_place_meanwhile_is_not_deleted() -> None:
    world, name = stranded()
    world.clock.advance(300.0)
    world.leader.hear()
    world.leader.turn()
    world.bind(name, AWAY)
    world.leader.let_go()
    world.leader.settle()

    assert name in world.cluster.pods
