"""Subnets for GPUs: who asks for GPUs, and where such pods and all others may go."""

from __future__ import annotations

from typing import Any

import msgspec

from api.elasticity import PLACEMENT, REASON, TAINT
from controllers.elasticity.nodes import Nodes, gpus_asked_for, sorted_out
from controllers.elasticity.patches import TOLERATION
from controllers.elasticity.pods import PodSpec
from controllers.elasticity.super_nodes import plan
from kube.types import ObjectMeta
from tests.elasticity_world import HOME, World, node, super_node, with_subnets
from tests.factories import NOW
from tests.tables import table

GPU = "drawbridge.io/gpu"
GPU_TAINT = {"key": GPU, "value": "true", "effect": "NoSchedule"}
GPU_TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
EVERYTHING = {"operator": "Exists"}
TYPE, COUNT = "eks.tke.cloud.tencent.com/gpu-type", "eks.tke.cloud.tencent.com/gpu-count"
SHARE = "tke.cloud.tencent.com/qgpu-core"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
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


# What is on the nodes


@table(
    "gpus, labels, taints",
    {
        "none": ((False, False), [None, None], [[], []]),
        "one of two": ((True, False), ["true", "false"], [[GPU_TAINT], []]),
        "all": ((True, True), ["true", "true"], [[GPU_TAINT], [GPU_TAINT]]),
    },
)
def test_a_node_says_whether_it_is_for_gpus_if_any_is(
    gpus: tuple[bool, ...], labels: list[str | None], taints: list[list[dict[str, str]]]
) -> None:
    made = [action.body for action in plan([], with_subnets(gpu=gpus), NOW)]

    assert [each["metadata"]["labels"].get(GPU) for each in made] == labels
    own = {"key": TAINT.key, "effect": TAINT.effect}
    assert [each["spec"]["taints"] for each in made] == [[own, *each] for each in taints]


# Where pods go


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
