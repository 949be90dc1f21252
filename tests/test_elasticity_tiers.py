"""Tiers of super nodes: what is on the nodes and on the pods, so that the scheduler prefers the first one."""

from __future__ import annotations

from typing import Any

import msgspec

from api.elasticity import REASON, TAINT
from controllers.elasticity.nodes import WatchedNode, preferring, sorted_out, tier_of
from controllers.elasticity.patches import TOLERATION, to_super_node
from controllers.elasticity.pods import decode
from controllers.elasticity.reporter import TIER_PODS
from controllers.elasticity.super_nodes import plan
from dev.fake_api import merged
from kube.types import Node
from settings import ElasticitySettings
from tests.elasticity_world import HOME, World, node, raw_of, raw_pod, super_node, with_subnets
from tests.factories import NOW
from tests.tables import table

SUPER_TAINT = {"key": TAINT.key, "effect": "NoSchedule"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def configured(*tiers: int) -> ElasticitySettings:
    return with_subnets(tier=tiers)


def after(*tiers: int) -> list[dict[str, str]]:
    """The taints that say so."""
    return [{"key": f"drawbridge.io/after-tier-{tier}", "effect": "PreferNoSchedule"} for tier in tiers]


def tiered(tier: int, name: str = "", **spec: Any) -> WatchedNode:
    return super_node(name or f"eklet-subnet-{tier}", {"drawbridge.io/tier": str(tier)}, **spec)


def avoiding(weight: int, *tiers: int) -> dict[str, Any]:
    expression = {
        "key": "drawbridge.io/tier",
        "operator": "NotIn",
        "values": [str(tier) for tier in tiers],
    }
    return {"weight": weight, "preference": {"matchExpressions": [expression]}}


# What is on the nodes


@table(
    "tiers, labels, taints",
    {
        "all alike": ((1, 1), [None, None], [[], []]),
        "all alike, and not the first": ((3, 3), [None, None], [[], []]),
        "two": ((1, 2), ["1", "2"], [[], after(1)]),
        "three, of which one is not used": ((4, 1, 2), ["4", "1", "2"], [after(1, 2), [], after(1)]),
    },
)
def test_a_node_says_its_tier_and_which_go_before_if_there_are_several(
    tiers: tuple[int, ...], labels: list[str | None], taints: list[list[dict[str, str]]]
) -> None:
    made = [action.body for action in plan([], configured(*tiers), NOW)]

    assert [each["metadata"]["labels"].get("drawbridge.io/tier") for each in made] == labels
    assert [each["spec"]["taints"] for each in made] == [[SUPER_TAINT, *each] for each in taints]


def registered(*tiers: int) -> list[dict[str, Any]]:
    """Nodes as they are for these settings, with a taint of another writer."""
    bodies = [dict(action.body) for action in plan([], configured(*tiers), NOW)]
    for number, body in enumerate(bodies):
        body["metadata"] |= {"uid": f"uid-{number}", "resourceVersion": "1"}
        body["spec"]["taints"].insert(1, {**NOT_READY, "timeAdded": "2026-01-01T00:00:00Z"})
    return bodies


@table(
    "before, now",
    {
        "tiers come": ((1, 1, 1), (1, 2, 3)),
        "tiers go": ((1, 2, 3), (2, 2, 2)),
        "tiers change": ((1, 2, 3), (4, 2, 2)),
    },
)
def test_nodes_that_there_are_follow_the_settings_and_keep_all_else(
    before: tuple[int, ...], now: tuple[int, ...]
) -> None:
    found = registered(*before)
    actions = plan([msgspec.convert(each, Node) for each in found], configured(*now), NOW)
    changes = {action.name: action.body for action in actions}
    after_it = [merged(each, changes.get(each["metadata"]["name"], {})) for each in found]

    assert {action.verb for action in actions} == {"change"}
    for each, expected in zip(after_it, registered(*now), strict=True):
        assert each["metadata"]["labels"] == expected["metadata"]["labels"]
        assert sorted(map(str, each["spec"]["taints"])) == sorted(map(str, expected["spec"]["taints"]))
    assert plan([msgspec.convert(each, Node) for each in after_it], configured(*now), NOW) == []


def test_a_node_without_the_label_is_of_the_first_tier_and_they_are_in_order() -> None:
    nodes = sorted_out([tiered(3, "a"), tiered(2, "b"), super_node("c"), tiered(1, "d"), node(HOME)])

    assert [each.metadata.name for each in nodes.super] == ["c", "d", "b", "a"]
    assert tier_of(super_node("c", {"drawbridge.io/tier": "first"})) == 1


# What is on the pods


@table(
    "tiers, terms",
    {
        "no subnets": ((), []),
        "one tier": ((2,), []),
        "two": ((1, 2), [avoiding(100, 2)]),
        "four": ((1, 2, 3, 4), [avoiding(100, 2, 3, 4), avoiding(10, 3, 4), avoiding(1, 4)]),
    },
)
def test_a_pod_that_is_sent_prefers_the_first_tiers(
    tiers: tuple[int, ...], terms: list[dict[str, Any]]
) -> None:
    held = decode(raw_of(raw_pod("web-1")))
    affinity = to_super_node(held, "why", in_order=False, tiers=tiers)["spec"]["affinity"]["nodeAffinity"]

    assert affinity.get("preferredDuringSchedulingIgnoredDuringExecution", []) == terms
    assert "requiredDuringSchedulingIgnoredDuringExecution" in affinity


def test_the_preferences_of_the_user_stay_and_ours_are_not_added_twice() -> None:
    own = {"weight": 50, "preference": {"matchExpressions": [{"key": "mine", "operator": "Exists"}]}}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [own]}
    spec = {"affinity": {"nodeAffinity": preferred, "podAffinity": {"x": "y"}}, "priority": 1}
    once = preferring(spec, (1, 2))

    held = once["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert held == [own, avoiding(100, 2)]
    assert (once["affinity"]["podAffinity"], once["priority"]) == ({"x": "y"}, 1)
    assert preferring(once, (1, 2)) == once


def nodes_of(*tiers: int, **first: Any) -> Any:
    """Super nodes of *tiers*, what is *first* of the first one alone, and one local node."""
    those = [tiered(tier, **(first if tier == tiers[0] else {})) for tier in tiers]
    return sorted_out([node(HOME), *those])


@table(
    "first, said",
    {
        "free": ({}, 1),
        "cordoned": ({"unschedulable": True}, 2),
        "not ready": ({"taints": [NOT_READY]}, 2),
        "without room for one more pod": ({"allocatable": {"pods": "0"}}, 2),
        "too small": ({"allocatable": {"cpu": "1", "pods": "9"}}, 2),
        "with room for one more pod": ({"allocatable": {"cpu": "2", "pods": "1"}}, 1),
    },
)
def test_the_reason_names_the_first_tier_that_takes_the_pod(first: dict[str, Any], said: int) -> None:
    asking = {"containers": [{"name": "app", "image": "app", "resources": {"requests": {"cpu": "2"}}}]}
    world = World(settings=configured(1, 2), nodes=nodes_of(1, 2, **first))
    (sent,) = world.create(1, n="0", spec=asking)
    stuck = world.stuck("other", spec=asking)
    world.leader.settle()

    assert world.annotations(sent)[REASON].endswith(f"to super node, tier {said} first")
    assert world.annotations(stuck)[REASON].endswith(f"may go to a super node, tier {said} first")


@table(
    "tiers, cordoned, tolerated",
    {
        "one tier": ((1,), False, []),
        "two: there is only one taint": ((1, 2), False, []),
        "two, the first one cordoned": ((1, 2), True, [1]),
        "three": ((1, 2, 3), False, [2]),
        "three, the first one cordoned": ((1, 2, 3), True, [1]),
        "four": ((1, 2, 3, 4), False, [2, 3]),
    },
)
def test_a_burst_tolerates_what_would_make_its_first_tier_count_for_less(
    tiers: tuple[int, ...], cordoned: bool, tolerated: list[int]
) -> None:
    world = World(settings=configured(*tiers), nodes=nodes_of(*tiers, unschedulable=cordoned))
    name = world.stuck(spec={"tolerations": [{"key": "mine"}]})
    world.leader.settle()

    expected = [{**each, "operator": "Exists"} for each in after(*tolerated)]
    held = world.cluster.pods[name]["spec"]["tolerations"]
    assert [each for each in held if each.get("effect") != "NoExecute"] == [
        {"key": "mine"},
        TOLERATION,
        *expected,
    ]
    assert "affinity" not in world.cluster.pods[name]["spec"]


def test_the_metrics_say_how_many_pods_are_in_each_of_several_tiers() -> None:
    TIER_PODS.clear()
    world = World(settings=configured(1, 2), nodes=nodes_of(1, 2))
    for tier, name in zip((1, 2, 2), world.create(3, gated=False), strict=True):
        world.bind(name, f"eklet-subnet-{tier}")
    world.leader.settle()
    assert shown() == {"1": 1, "2": 2}
    world.leader.nodes = nodes_of(1)
    world.leader.settle()

    assert shown() == {}


def shown() -> dict[str, float]:
    (metric,) = TIER_PODS.collect()
    return {sample.labels["tier"]: sample.value for sample in metric.samples}
