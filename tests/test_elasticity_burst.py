"""Pods without local room are allowed on super nodes, in place, and cost less to delete."""

from __future__ import annotations

from typing import Any

from api.elasticity import BURST, COST, OUR_COST, SWITCH, TAINT_KEY
from controllers.elasticity.patches import cost_change
from controllers.elasticity.pods import decode
from settings import ElasticitySettings
from tests.elasticity_world import AWAY, HOME, World, raw_of, raw_pod
from tests.tables import table

# Bursts

PORT = {"containers": [{"name": "app", "ports": [{"containerPort": 61000}, {"hostPort": 65534}]}]}


def tolerates(world: World, name: str) -> bool:
    return any(each["key"] == TAINT_KEY for each in world.cluster.pods[name]["spec"].get("tolerations", ()))


def test_a_pod_without_local_room_is_allowed_on_super_nodes_in_place() -> None:
    world = World(switch=True)
    name = world.stuck()
    uid = world.cluster.pod(name).metadata.uid
    world.leader.settle()

    assert tolerates(world, name)
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
            "KeptLocal",
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
def test_a_pod_that_has_to_stay_is_reported_with_all_reasons_once(
    switch: bool | None, parts: dict[str, Any], reason: str, message: str
) -> None:
    world = World(switch=switch)
    name = world.stuck(**parts)
    world.leader.settle()

    assert not tolerates(world, name)
    assert world.leader.recorder.events == [(reason, message)]


def test_a_switch_that_says_nonsense_counts_as_not_set_and_is_reported() -> None:
    world = World()
    name = world.stuck(annotations={SWITCH: "perhaps"})
    world.leader.settle()

    assert tolerates(world, name)
    assert world.leader.recorder.reasons == ["BadSwitch", "SentToSuperNode"]


def test_namespaces_that_are_no_longer_excluded_are_reconciled_again() -> None:
    world = World(settings=ElasticitySettings(excluded_namespaces=("shop",)))
    name = world.stuck()
    world.leader.settle()
    assert not tolerates(world, name)
    world.leader.settings = ElasticitySettings()
    world.leader.settle()

    assert tolerates(world, name)


# Deletion costs

OURS = {COST: "-100", OUR_COST: "-100"}
GONE = dict.fromkeys(OURS)


@table(
    "node, annotations, change",
    {
        "away without one gets ours": (AWAY, {}, OURS),
        "away with ours keeps it": (AWAY, OURS, {}),
        "the user's stays": (AWAY, {COST: "7"}, {}),
        "ours that the user changed stays": (AWAY, {COST: "7", OUR_COST: "-100"}, {}),
        "ours that the user took away stays away": (AWAY, {OUR_COST: "-100"}, {}),
        "ours goes local": (HOME, OURS, GONE),
        "the user's stays local": (HOME, {COST: "-100"}, {}),
        "none local": (HOME, {}, {}),
    },
)
def test_the_cost_follows_the_node_unless_the_user_gave_one(
    node: str, annotations: dict[str, str], change: dict[str, Any]
) -> None:
    raw = raw_pod("web-1", gated=False, annotations=annotations, spec={"nodeName": node})

    patch = cost_change(decode(raw_of(raw)), frozenset({AWAY}))
    assert (patch["metadata"]["annotations"] if patch else {}) == change


def test_a_pod_without_an_owner_needs_no_cost() -> None:
    raw = raw_pod("web-1", gated=False, owned=False, spec={"nodeName": AWAY})

    assert cost_change(decode(raw_of(raw)), frozenset({AWAY})) is None


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


def about_to_write_a_cost() -> tuple[World, str]:
    """A pod that has come to a super node for want of room local."""
    world = World()
    [name] = world.create(gated=False, n=None)
    world.bind(name, AWAY)
    world.leader.hear()
    world.leader.turn()
    assert len(world.leader.queue) == 1
    return world, name


def test_a_cost_that_came_after_a_report_of_the_kubelet_is_written_again() -> None:
    world, name = about_to_write_a_cost()
    world.cluster.edit(name, {"status": {"podIP": "10.0.0.1"}})
    world.leader.hear()

    world.leader.let_go()
    world.leader.settle()

    assert world.annotations(name)[COST] == OURS[COST]


def test_a_cost_that_was_refused_once_is_written_later() -> None:
    world, name = about_to_write_a_cost()

    world.leader.let_go(fault="forbidden")
    world.leader.settle()

    assert world.annotations(name)[COST] == OURS[COST]
