"""A pod that super nodes do not take comes home again, by the one that replaces it."""

from __future__ import annotations

import msgspec

from controllers.elasticity.nodes import WatchedNode, sorted_out
from settings import ElasticitySettings
from settings.elasticity import HomeFailover
from tests.elasticity_world import AWAY, HOME, World, node, super_node

ON = ElasticitySettings(home_failover=HomeFailover.model_validate({"enabled": True, "homeAfter": "5m"}))


def stranded(settings: ElasticitySettings, **parts: object) -> tuple[World, str]:
    world = World(settings=settings)
    (name,) = world.create(1, n="0", **parts)
    world.leader.settle()
    world.no_room(name)
    return world, name


def test_it_is_given_up_after_a_while_and_its_successor_stays_at_home() -> None:
    world, name = stranded(ON)
    world.clock.advance(299.0 - 5.0)
    world.leader.settle(1)
    assert name in world.cluster.pods
    world.leader.settle(2)
    assert name not in world.cluster.pods
    (successor,) = world.create(1, n="0")
    world.leader.settle()

    assert world.annotations(successor)["drawbridge.io/placement"] == "local"
    assert world.leader.recorder.reasons == ["AllowedHomeAgain"] * 2


def test_super_nodes_are_tried_again_later() -> None:
    world, _ = stranded(ON)
    world.clock.advance(300.0)
    world.leader.settle()
    world.clock.advance(300.0)
    world.create(1, n="0")
    world.leader.settle()

    assert world.placements() == {"super": 1}


def test_it_is_off_by_default() -> None:
    world, name = stranded(ElasticitySettings())
    world.clock.advance(3600.0)
    world.leader.settle()

    assert name in world.cluster.pods


def test_a_pod_that_nobody_replaces_is_never_deleted() -> None:
    world, name = stranded(ON, owned=False)
    world.clock.advance(3600.0)
    world.leader.settle()

    assert name in world.cluster.pods
    assert world.leader.recorder.reasons == ["NotTakenBySuperNode"]


def test_a_pod_that_found_its_place_meanwhile_is_not_deleted() -> None:
    world, name = stranded(ON)
    world.clock.advance(300.0)
    world.leader.hear()
    world.leader.turn()
    world.bind(name, AWAY)
    world.leader.let_go()
    world.leader.settle()

    assert name in world.cluster.pods


def test_while_no_super_node_is_ready_none_is_sent_there() -> None:
    not_ready = {"type": "Ready", "status": "False"}
    out = msgspec.convert(
        {**msgspec.to_builtins(super_node()), "status": {"conditions": [not_ready]}}, WatchedNode
    )
    world = World(settings=ON, nodes=sorted_out([node(HOME), out]))
    world.create(3)
    world.leader.settle()

    assert world.placements() == {"local": 3}
    assert world.leader.recorder.reasons == ["AllowedHomeAgain"]
