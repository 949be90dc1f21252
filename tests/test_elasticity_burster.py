"""Pods for which there is no room at home are let to super nodes, in place."""

from __future__ import annotations

from typing import Any

from controllers.elasticity.nodes import Nodes
from settings import ElasticitySettings
from settings.elasticity import MaxSuperPods
from tests.elasticity_world import AWAY, HOME, World, fleet
from tests.tables import table
from webhook.elasticity import BURST, SWITCH

PORT = {"containers": [{"name": "app", "ports": [{"containerPort": 61000}, {"hostPort": 65534}]}]}


def stuck(world: World, **parts: Any) -> str:
    (name,) = world.create(1, **{"gated": False, "n": None} | parts)
    world.no_room(name)
    return name


def is_let(world: World, name: str) -> bool:
    return bool(world.cluster.pods[name]["spec"].get("tolerations"))


def test_a_pod_without_room_is_let_to_super_nodes_where_it_stands() -> None:
    world = World(switch=True)
    name = stuck(world)
    uid = world.cluster.pod(name).metadata.uid
    world.leader.settle()

    assert is_let(world, name)
    assert world.cluster.pod(name).metadata.uid == uid
    assert world.leader.recorder.events == [
        ("SentToSuperNode", "No local node has room, global=true local=unset: it may go to a super node")
    ]
    assert world.cluster.writes == [name]


def test_one_of_the_first_n_may_burst_when_home_is_full() -> None:
    world = World()
    (name,) = world.create(1)
    world.leader.settle()
    world.no_room(name)
    world.leader.settle()
    assert world.annotations(name)[BURST] == "allowed"
    world.bind(name, AWAY)
    (next_one,) = world.create(1, n="1")
    world.leader.settle()

    assert world.annotations(next_one)["drawbridge.io/placement"] == "local"


@table(
    "switch, parts, reason, message",
    {
        "the switches keep it": (
            False,
            {},
            "KeptAtHome",
            "No local node has room, and global=false local=unset: it must stay local",
        ),
        "the rules keep it": (
            None,
            {"spec": PORT, "namespace": "kube-system"},
            "NotEligibleForSuperNode",
            (
                "It cannot run on super nodes: namespace kube-system is one of excludedNamespaces (kube-system,"
                " tke-eni-ip-webhook); container app: containerPort is 61000: super nodes keep ports 61000-65534 for"
                " themselves; container app: hostPort is 65534: super nodes keep ports 61000-65534 for themselves"
            ),
        ),
    },
)
def test_a_pod_that_has_to_stay_is_told_all_reasons_once(
    switch: bool | None, parts: dict[str, Any], reason: str, message: str
) -> None:
    world = World(switch=switch)
    name = stuck(world, **parts)
    world.leader.settle()

    assert not is_let(world, name)
    assert world.leader.recorder.events == [(reason, message)]


def test_a_switch_that_is_set_later_lets_the_pods_that_wait() -> None:
    world = World(switch=False)
    name = stuck(world)
    opened = stuck(world, annotations={SWITCH: "true"})
    world.leader.settle()
    assert (is_let(world, name), is_let(world, opened)) == (False, True)
    world.leader.switch = True
    world.leader.settle()

    assert is_let(world, name)


def test_a_switch_that_says_nonsense_counts_as_not_set_and_is_told() -> None:
    world = World()
    name = stuck(world, annotations={SWITCH: "perhaps"})
    world.leader.settle()

    assert is_let(world, name)
    assert world.leader.recorder.reasons == ["BadSwitch", "SentToSuperNode"]


def test_where_there_is_no_super_node_nothing_is_written() -> None:
    world = World(nodes=Nodes())
    name = stuck(world)
    world.leader.settle()
    assert not is_let(world, name)
    world.leader.nodes = fleet()
    world.leader.settle()

    assert is_let(world, name)


def test_no_more_are_let_than_may_be_there_wherever_they_land() -> None:
    world = World(settings=ElasticitySettings(max_super_pods=MaxSuperPods(total=1)))
    first, second = stuck(world), stuck(world)
    world.leader.settle()
    assert (is_let(world, first), is_let(world, second)) == (True, False)
    assert world.leader.recorder.reasons == ["SuperNodeCapReached", "SentToSuperNode"]
    world.bind(first, HOME)  # room was found after all
    world.leader.settle()

    assert is_let(world, second)


def test_a_pod_that_lets_itself_to_super_nodes_is_left_alone() -> None:
    world = World()
    stuck(world, spec={"tolerations": [{"operator": "Exists"}]})
    world.leader.settle()

    assert world.cluster.writes == []


def test_namespaces_that_are_excluded_no_more_are_seen_anew() -> None:
    world = World(settings=ElasticitySettings(excluded_namespaces=("shop",)))
    name = stuck(world)
    world.leader.settle()
    assert not is_let(world, name)
    world.leader.settings = ElasticitySettings()
    world.leader.settle()

    assert is_let(world, name)
