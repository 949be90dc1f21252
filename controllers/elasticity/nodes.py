"""Super nodes: which nodes are, which are ready, and what the tier and the GPUs of their subnets ask of nodes and pods.

Tiers: while a super node of the first tier has room, the scheduler prefers it to those of later tiers. Two of its
scores say so, because neither is enough alone: topology spread, which it applies to pods of workloads by default,
weighs as much as node affinity. A pod that is pending cannot get an affinity any more, but taints count. With a single
tier there is neither.

GPUs: super nodes of subnets for GPUs take pods that ask for GPUs and no others, and no other super node takes these.
A taint keeps other pods off. Pods that ask for GPUs get its toleration, and required affinity while they are gated.
Without such a subnet all of this is unused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from controllers.elasticity.pods import PodSpec
from kube.selectors import PREFERRED, is_tolerated, requiring
from kube.types import Node, ObjectMeta, Taint, Toleration, amount, is_super
from settings import ElasticitySettings
from settings.elasticity import Subnet

MANAGED_BY, MANAGER = "app.kubernetes.io/managed-by", "drawbridge"
"""The label of super nodes of ours."""
CONDITIONS = tuple(
    f"node.kubernetes.io/{name}"
    for name in (
        "not-ready",
        "unreachable",
        "network-unavailable",
        "memory-pressure",
        "disk-pressure",
        "pid-pressure",
    )
)
"""Taints of a state that passes, as Kubernetes sets them."""

TIER = "drawbridge.io/tier"
"""The label of a super node with the tier of its subnet; a node without it is of the first."""
AFTER = "drawbridge.io/after-tier-"
"""How the keys of taints begin that make a super node less preferred than those of that tier."""
AVOIDED = "PreferNoSchedule"
FIRST = 1
WEIGHTS = (100, 10, 1)
"""Of what keeps a pod off all tiers after the first one, after the second one, and so on."""

NOT_STARTING = Taint(key="drawbridge.io/not-starting", effect=AVOIDED)
"""Of a super node that recently did not start pods; a pod that is pending can be kept off it in no other way."""

GPU = "drawbridge.io/gpu"
"""The label of a super node, "true" or "false", if there are subnets for GPUs; the key of the taint, too."""
GPU_TAINT = Taint(key=GPU, value="true", effect="NoSchedule")
GPU_TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
TYPE, COUNT = "eks.tke.cloud.tencent.com/gpu-type", "eks.tke.cloud.tencent.com/gpu-count"
"""The annotations by which a pod on a super node gets GPUs."""
PARTS_OF_NAMES = ("gpu", "vcuda", "nvidia.com/")
"""One of them is in the name of each resource that is a GPU, or a part of one."""
ONLY_GPUS = {"key": GPU, "operator": "In", "values": ["true"]}
NO_OTHERS = {"key": GPU, "operator": "NotIn", "values": ["false"]}
"""Local nodes have no such label, and match."""
NO_GPUS = {"key": GPU, "operator": "NotIn", "values": ["true"]}

OF_SETTINGS = (TIER, GPU)
"""Labels that go when the settings ask for none."""

Raw = Mapping[str, Any]
Gpus = str | None
"""By which resource or annotation a pod asks for GPUs: "" when it does not, None where no subnet is for them."""


class WatchedNode(Node, frozen=True):
    @property
    def in_trouble(self) -> bool:
        """Whether it is in a state that passes."""
        return any(taint.key in CONDITIONS for taint in self.spec.taints)

    @property
    def for_gpus(self) -> bool:
        return self.metadata.labels.get(GPU) == "true"


@dataclass(frozen=True)
class Nodes:
    """*super* are sorted by tier; *local* are all other nodes.

    *names* are those of super nodes that are gone, too, and of ours whose type another client has changed: pods on them
    run on until they are deleted.
    """

    names: frozenset[str] = frozenset()
    super: tuple[WatchedNode, ...] = ()
    local: tuple[WatchedNode, ...] = ()


def sorted_out(nodes: Iterable[WatchedNode]) -> Nodes:
    nodes = sorted(nodes, key=lambda node: (tier_of(node), node.metadata.name))
    those = tuple(node for node in nodes if is_super(node))
    ours = (node for node in nodes if node.metadata.labels.get(MANAGED_BY) == MANAGER)
    names = frozenset(node.metadata.name for node in (*those, *ours))
    local = tuple(node for node in nodes if not is_super(node))
    return Nodes(names, those, local)


def matters(old: WatchedNode | None, new: WatchedNode | None) -> bool:
    """Of super nodes, what a decision reads."""
    return any(each and is_super(each) for each in (old, new)) and differ(old, new)


def differ(old: WatchedNode | None, new: WatchedNode | None) -> bool:
    """Not by what every node reports all the time."""
    return _what_counts(old) != _what_counts(new)


def _what_counts(node: WatchedNode | None) -> object:
    if node is None:
        return None
    spec = node.spec
    return node.ready, node.metadata.labels, spec.taints, spec.unschedulable, node.status.allocatable


def subnet_labels(subnet: Subnet, settings: ElasticitySettings) -> dict[str, str]:
    tier = {TIER: str(subnet.tier)} if len(settings.tiers) > 1 else {}
    return tier | ({GPU: str(subnet.gpu).lower()} if settings.gpus else {})


def subnet_taints(subnet: Subnet, settings: ElasticitySettings) -> list[Taint]:
    """One for each tier before, as the scheduler prefers nodes with fewer of them and refuses none; and for GPUs."""
    before = [Taint(key=f"{AFTER}{tier}", effect=AVOIDED) for tier in settings.tiers if tier < subnet.tier]
    return [*before, GPU_TAINT] if subnet.gpu else before


def is_subnet_taint(taint: Taint) -> bool:
    return taint.key.startswith(AFTER) or taint.key in (GPU, NOT_STARTING.key)


def tier_of(node: Node) -> int:
    said = node.metadata.labels.get(TIER, "")
    return int(said) if said.isascii() and said.isdigit() else FIRST


def tier_tolerations(first: int | None, tiers: Sequence[int]) -> list[Raw]:
    """Of the taints that do not set off the *first* tier with room, so that this one outweighs topology spread."""
    keys = [f"{AFTER}{tier}" for tier in tiers[:-1] if tier != first] if first else ()
    return [{"key": key, "operator": "Exists", "effect": AVOIDED} for key in keys]


def preferring(spec: Raw, tiers: Sequence[int]) -> dict[str, Any]:
    """*spec* of a pod, raw, with preferences for the first of *tiers* added to those that it has.

    By what they avoid, so that local nodes are as good as super nodes of the first tier.
    """
    affinity = spec.get("affinity") or {}
    of_node = affinity.get("nodeAffinity") or {}
    terms = list(of_node.get(PREFERRED) or [])
    for number, weight in zip(range(1, len(tiers)), WEIGHTS, strict=False):
        avoided = {"key": TIER, "operator": "NotIn", "values": [str(tier) for tier in tiers[number:]]}
        term = {"weight": weight, "preference": {"matchExpressions": [avoided]}}
        terms += [] if term in terms else [term]
    if not terms:
        return {**spec}
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**of_node, PREFERRED: terms}}}


def gpus_asked_for(metadata: ObjectMeta, spec: PodSpec) -> str:
    return next(_gpus(metadata, spec), "")


def _gpus(metadata: ObjectMeta, spec: PodSpec) -> Iterator[str]:
    for container in (*spec.containers, *spec.init_containers):
        for name, quantity in {**container.resources.limits, **container.resources.requests}.items():
            if "/" in name and any(part in name for part in PARTS_OF_NAMES) and amount(quantity):
                yield name
    for name in (TYPE, COUNT):
        if metadata.annotations.get(name, "").strip() not in ("", "0"):
            yield f"annotation {name}"


def with_gpus(spec: Raw, gpus: Gpus, required: Raw | None) -> dict[str, Any]:
    """*spec* of a pod, raw, so that it comes to super nodes for GPUs if it asks for them, and to no others.

    *required* is the expression of a gated pod's affinity; None for a pending one, which gets tolerations alone.
    """
    if gpus:
        return tolerating(requiring(spec, required) if required else spec, GPU_TOLERATION)
    if gpus is None or required is None:
        return {**spec}
    held = msgspec.convert(spec.get("tolerations") or (), tuple[Toleration, ...])
    return requiring(spec, NO_GPUS) if is_tolerated(GPU_TAINT, held) else {**spec}


def tolerating(spec: Raw, *tolerations: Raw) -> dict[str, Any]:
    """*spec* of a pod, raw, with those of *tolerations* that it lacks."""
    held = list(spec.get("tolerations") or ())
    added = [each for each in tolerations if each not in held]
    return {**spec, "tolerations": [*held, *added]} if added else {**spec}


def why_not_stray(gpus: str, stray: Node) -> str:
    """Why a pod may not go to super nodes of which *stray* is one that is not for GPUs; and the way out."""
    could = f"it asks for GPUs ({gpus}), and could run on {stray.metadata.name}"
    if GPU not in stray.metadata.labels:
        return f"{could}, which may or may not be for GPUs: label that node {GPU}=true or false"
    way_out = f'give it LOCAL_REPLICAS, or node affinity that requires {GPU} NotIn ["false"]'
    return f"{could}, whose subnet is not for GPUs: {way_out}"
