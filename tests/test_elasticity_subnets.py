"""What tiers and GPUs of subnets put on super nodes and on pods, and where these go."""

from __future__ import annotations

from typing import Any

import msgspec

from api.elasticity import PLACEMENT, REASON, TAINT
from controllers.elasticity.nodes import Nodes, WatchedNode, gpus_asked_for, preferring, sorted_out, tier_of
from controllers.elasticity.patches import TOLERATION, to_super_node
from controllers.elasticity.pods import PodSpec, decode
from controllers.elasticity.reporter import TIER_PODS
from controllers.elasticity.super_nodes import plan
from dev.fake_api import merged
from kube.selectors import REQUIRED
from kube.types import Node, ObjectMeta
from settings import ElasticitySettings
from tests.elasticity_world import HOME, World, node, raw_of, raw_pod, super_node, with_subnets
from tests.factories import NOT_READY, NOW
from tests.tables import table

SUPER_TAINT = {"key": TAINT.key, "effect": "NoSchedule"}


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


GPU = "drawbridge.io/gpu"
GPU_TAINT = {"key": GPU, "value": "true", "effect": "NoSchedule"}


@table(
    "subnets, labels, taints",
    {
        "all of one tier": ({"tier": (1, 1)}, [None, None], [[], []]),
        "of one, and not the first": ({"tier": (3, 3)}, [None, None], [[], []]),
        "of two": ({"tier": (1, 2)}, ["1", "2"], [[], after(1)]),
        "of three, and one is not used": ({"tier": (4, 1, 2)}, ["4", "1", "2"], [after(1, 2), [], after(1)]),
        "none for GPUs": ({"gpu": (False, False)}, [None, None], [[], []]),
        "one of two": ({"gpu": (True, False)}, ["true", "false"], [[GPU_TAINT], []]),
        "both": ({"gpu": (True, True)}, ["true", "true"], [[GPU_TAINT]] * 2),
    },
)
def test_a_node_says_its_tier_if_there_are_several_and_whether_it_is_for_gpus_if_any_is(
    subnets: dict[str, tuple[int, ...]], labels: list[str | None], taints: list[list[dict[str, str]]]
) -> None:
    (field,) = subnets
    made = [action.body for action in plan([], with_subnets(**subnets), NOW)]

    assert [each["metadata"]["labels"].get(f"drawbridge.io/{field}") for each in made] == labels
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
    patch = to_super_node(held, "why", in_order=False, tiers=tiers, gpus=None, avoided=())
    affinity = patch["spec"]["affinity"]["nodeAffinity"]

    assert affinity.get("preferredDuringSchedulingIgnoredDuringExecution", []) == terms
    assert REQUIRED in affinity


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
    world.leader.set_nodes(nodes_of(1))
    world.leader.settle()

    assert shown() == {}


def shown() -> dict[str, float]:
    (metric,) = TIER_PODS.collect()
    return {sample.labels["tier"]: sample.value for sample in metric.samples}


GPU_TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
EVERYTHING = {"operator": "Exists"}
TYPE, COUNT = "eks.tke.cloud.tencent.com/gpu-type", "eks.tke.cloud.tencent.com/gpu-count"
SHARE = "tke.cloud.tencent.com/qgpu-core"
FOR_GPUS, OTHER = "eklet-subnet-0", "eklet-subnet-1"


def asking(name: str = "nvidia.com/gpu", quantity: str = "1", field: str = "limits") -> dict[str, Any]:
    resources = {each: {name: quantity} for each in {field, "requests"}}
    return {"containers": [{"name": "app", "image": "app", "resources": resources}]}


# Who asks for GPUs


@table(
    "spec, annotations, asked",
    {
        "nothing": ({}, {}, ""),
        "vCPUs": (asking("cpu"), {}, ""),
        "another device": (asking("example.com/fpga"), {}, ""),
        "GPUs": (asking(), {}, "nvidia.com/gpu"),
        "no GPU": (asking(quantity="0"), {}, ""),
        "GPUs of another make": (asking("amd.com/gpu"), {}, "amd.com/gpu"),
        "a part of one": (asking("nvidia.com/mig-1g.5gb"), {}, "nvidia.com/mig-1g.5gb"),
        "a share of one, of TKE": (asking(SHARE), {}, SHARE),
        "an init container": ({"initContainers": asking()["containers"]}, {}, "nvidia.com/gpu"),
        "a type of super nodes": ({}, {TYPE: "T4,V100"}, f"annotation {TYPE}"),
        "an empty type": ({}, {TYPE: ""}, ""),
        "a count of super nodes": ({}, {COUNT: "1"}, f"annotation {COUNT}"),
        "a count of none": ({}, {COUNT: "0"}, ""),
    },
)
def test_a_pod_asks_for_gpus_by_resources_or_annotations(
    spec: dict[str, Any], annotations: dict[str, str], asked: str
) -> None:
    assert gpus_asked_for(ObjectMeta(annotations=annotations), msgspec.convert(spec, PodSpec)) == asked


# Where such pods go


def nodes(**of_other: Any) -> Nodes:
    """One local node, one super node for GPUs, and one that is not."""
    for_gpus = super_node(FOR_GPUS, {GPU: "true"}, taints=[GPU_TAINT])
    return sorted_out([node(HOME), for_gpus, super_node(OTHER, {GPU: "false"}, **of_other)])


def world(**parts: Any) -> World:
    return World(**{"settings": with_subnets(gpu=(True, False)), "nodes": nodes()} | parts)


def expressions(pod: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    """Of its required node affinity, which has one term."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
    terms = affinity["nodeSelectorTerms"] if affinity else [{"matchExpressions": []}]
    return [(each["key"], each["operator"], each["values"]) for each in terms[0]["matchExpressions"]]


SUPER_ONLY = ("node.kubernetes.io/instance-type", "In", ["eklet"])
NO_SUPER = ("node.kubernetes.io/instance-type", "NotIn", ["eklet"])


ONLY_GPUS, NO_GPUS, NO_OTHERS = (GPU, "In", ["true"]), (GPU, "NotIn", ["true"]), (GPU, "NotIn", ["false"])
TOLERANT = {"tolerations": [TOLERATION]}
TOLERATES_ALL = {"tolerations": [EVERYTHING]}


@table(
    "n, spec, place, required, tolerates",
    {
        "beyond N": ("0", asking(), "super", [SUPER_ONLY, ONLY_GPUS], True),
        "beyond N, without GPUs": ("0", {}, "super", [SUPER_ONLY], False),
        "beyond N, without GPUs, tolerating all": ("0", TOLERATES_ALL, "super", [SUPER_ONLY, NO_GPUS], False),
        "of the first N": ("1", asking(), "local", [NO_OTHERS], False),
        "of the first N, without GPUs": ("1", {}, "local", [], False),
        "of the first N, tolerating super nodes": ("1", asking() | TOLERANT, "local", [NO_SUPER], False),
        "tolerating super nodes": (None, asking() | TOLERANT, "any", [NO_OTHERS], True),
        "tolerating all, without GPUs": (None, TOLERATES_ALL, "any", [NO_GPUS], False),
    },
)
def test_a_gated_pod_gets_affinity_and_toleration_by_whether_it_asks_for_gpus(
    n: str | None, spec: dict[str, Any], place: str, required: list[Any], tolerates: bool
) -> None:
    there = world()
    (name,) = there.create(1, n=n, spec=spec)
    there.leader.settle()

    pod = there.cluster.pods[name]
    assert (there.annotations(name)[PLACEMENT], expressions(pod)) == (place, required)
    assert (GPU_TOLERATION in pod["spec"].get("tolerations", [])) is tolerates


def burst(there: World, **parts: Any) -> dict[str, Any]:
    """A pod that local nodes have no room for, after the leader has decided."""
    name = there.stuck(**parts)
    there.leader.settle()
    return there.cluster.pods[name]


LARGE = {"allocatable": {"cpu": "1k", "pods": "100"}}
NOT_OTHERS = {"matchExpressions": [{"key": GPU, "operator": "NotIn", "values": ["false"]}]}
KEPT_OFF = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [NOT_OTHERS]}}}}


@table(
    "parts, of_other, tolerations",
    {
        "without GPUs": ({}, {}, [TOLERATION]),
        "which no other super node has": ({"spec": asking()}, LARGE, [TOLERATION, GPU_TOLERATION]),
        "kept off the others by its own affinity": (
            {"annotations": {TYPE: "T4"}, "spec": KEPT_OFF},
            {},
            [TOLERATION, GPU_TOLERATION],
        ),
    },
)
def test_a_pending_pod_gets_tolerations_alone(
    parts: dict[str, Any], of_other: dict[str, Any], tolerations: list[dict[str, str]]
) -> None:
    spec = burst(world(nodes=nodes(**of_other)), **parts)["spec"]

    assert [each for each in spec["tolerations"] if each.get("effect") == "NoSchedule"] == tolerations


@table(
    "label, way_out",
    {
        "of another subnet": (
            {GPU: "false"},
            "whose subnet is not for GPUs: give it LOCAL_REPLICAS, or node affinity that requires"
            ' drawbridge.io/gpu NotIn ["false"]',
        ),
        "not managed": (
            {},
            "which may or may not be for GPUs: label that node drawbridge.io/gpu=true or false",
        ),
    },
)
def test_a_pending_pod_that_another_super_node_would_take_is_not_allowed_there(
    label: dict[str, str], way_out: str
) -> None:
    other = super_node(OTHER, label, unschedulable=True)
    for_gpus = super_node(FOR_GPUS, {GPU: "true"}, taints=[GPU_TAINT])
    there = world(nodes=sorted_out([node(HOME), for_gpus, other]))
    pod = burst(there, annotations={TYPE: "T4"})

    assert TOLERATION not in pod["spec"].get("tolerations", [])
    could = f"It cannot run on super nodes: it asks for GPUs (annotation {TYPE}), and could run on {OTHER}"
    assert there.leader.recorder.events == [("NotEligibleForSuperNode", f"{could}, {way_out}")]


@table(
    "parts, gpus, misses",
    {
        "GPUs, whose subnet is cordoned": ({"spec": asking()}, True, "is schedulable"),
        "no GPUs, and all subnets are for them": ({}, False, f"is without taint {GPU}:NoSchedule"),
    },
)
def test_a_pod_that_no_super_node_takes_stays(parts: dict[str, Any], gpus: bool, misses: str) -> None:
    taken = [super_node(OTHER, {GPU: "false"}, **LARGE)] if gpus else []
    those = super_node(FOR_GPUS, {GPU: "true"}, taints=[GPU_TAINT], unschedulable=gpus)
    there = world(nodes=sorted_out([node(HOME), those, *taken]))
    (sent,) = there.create(1, "sent", n="0", **parts)
    pod = burst(there, **parts)

    assert there.annotations(sent)[PLACEMENT] == "local"
    assert misses in there.annotations(sent)[REASON]
    assert TOLERATION not in pod["spec"].get("tolerations", [])
    assert there.leader.recorder.reasons == ["NoMatchingSuperNode"] * 2


def test_without_subnets_for_gpus_pods_that_ask_for_them_go_as_ever() -> None:
    there = world(
        settings=with_subnets(gpu=(False, False)), nodes=sorted_out([node(HOME), super_node(OTHER)])
    )
    (sent,) = there.create(1, "sent", n="0", annotations={TYPE: "T4"})
    pod = burst(there, annotations={TYPE: "T4"})

    assert expressions(there.cluster.pods[sent]) == [SUPER_ONLY]
    for each in (there.cluster.pods[sent], pod):
        tolerations = each["spec"]["tolerations"]
        assert [one for one in tolerations if one.get("effect") == "NoSchedule"] == [TOLERATION]
