"""Subnets for GPUs: their super nodes take pods that ask for GPUs and no others, and no other super node takes these.

A taint keeps other pods off. Pods that ask for GPUs get its toleration, and required affinity while they are gated.
Without such a subnet all of this is unused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import msgspec

from api.elasticity import requiring
from controllers.elasticity.pods import PodSpec
from kube.quantities import amount
from kube.selectors import is_tolerated
from kube.types import Node, ObjectMeta, Taint, Toleration

GPU = "drawbridge.io/gpu"
"""The label of a super node, "true" or "false", if there are subnets for GPUs; the key of the taint, too."""
TAINT = Taint(key=GPU, value="true", effect="NoSchedule")
TOLERATION = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
TYPE, COUNT = "eks.tke.cloud.tencent.com/gpu-type", "eks.tke.cloud.tencent.com/gpu-count"
"""The annotations by which a pod on a super node gets GPUs."""
PARTS_OF_NAMES = ("gpu", "vcuda", "nvidia.com/")
"""One of them is in the name of each resource that is a GPU, or a part of one."""

ONLY_THERE = {"key": GPU, "operator": "In", "values": ["true"]}
NOWHERE_ELSE = {"key": GPU, "operator": "NotIn", "values": ["false"]}
"""Local nodes have no such label, and match."""
NOT_THERE = {"key": GPU, "operator": "NotIn", "values": ["true"]}

Raw = Mapping[str, Any]


class Gpus(Enum):
    UNUSED = "no subnet is for GPUs"
    WANTED = "the pod asks for them"
    UNWANTED = "it does not"


def gpu_labels(*, gpu: bool, used: bool) -> dict[str, str]:
    return {GPU: str(gpu).lower()} if used else {}


def gpu_taints(*, gpu: bool) -> list[Taint]:
    return [TAINT] if gpu else []


def is_for_gpus(node: Node) -> bool:
    return node.metadata.labels.get(GPU) == "true"


def asked_for(metadata: ObjectMeta, spec: PodSpec) -> str:
    """By which resource or annotation a pod asks for GPUs; nothing when it does not."""
    return next(_asked_for(metadata, spec), "")


def _asked_for(metadata: ObjectMeta, spec: PodSpec) -> Iterator[str]:
    for container in (*spec.containers, *spec.init_containers):
        for name, quantity in {**container.resources.limits, **container.resources.requests}.items():
            if "/" in name and any(part in name for part in PARTS_OF_NAMES) and amount(quantity):
                yield name
    for name in (TYPE, COUNT):
        if metadata.annotations.get(name, "").strip() not in ("", "0"):
            yield f"annotation {name}"


def on_super_nodes(spec: Raw, gpus: Gpus) -> dict[str, Any]:
    """*spec* of a pod, raw, for super nodes alone."""
    if gpus is Gpus.WANTED:
        return _tolerating(requiring(spec, ONLY_THERE))
    return _kept_off(spec, gpus)


def on_any_node(spec: Raw, gpus: Gpus) -> dict[str, Any]:
    """For local nodes, and for super nodes."""
    if gpus is Gpus.WANTED:
        return _tolerating(requiring(spec, NOWHERE_ELSE))
    return _kept_off(spec, gpus)


def on_local_nodes(spec: Raw, gpus: Gpus) -> dict[str, Any]:
    """For local nodes, from where it may go to super nodes later: then no affinity can be added any more."""
    return requiring(spec, NOWHERE_ELSE) if gpus is Gpus.WANTED else {**spec}


def pending(spec: Raw, gpus: Gpus) -> dict[str, Any]:
    """For super nodes, too; only tolerations can be added."""
    return _tolerating(spec) if gpus is Gpus.WANTED else {**spec}


def hint(gpus: Gpus, asked: str) -> str:
    """What to set, where no super node takes the pod."""
    if gpus is Gpus.WANTED:
        return f"; it asks for GPUs ({asked}), so only subnets with gpu: true count, see cloud.subnets"
    return "; subnets with gpu: true do not count, because it asks for none, see cloud.subnets"


def no_way(asked: str, stray: Node) -> str:
    """Why a pod may not go to super nodes of which *stray* is one that is not for GPUs; and the way out."""
    could = f"it asks for GPUs ({asked}), and could come to {stray.metadata.name}"
    if GPU not in stray.metadata.labels:
        return (
            f"{could}, of which it is not known whether it is for GPUs: label that node {GPU}=true or false"
        )
    way_out = f'give it LOCAL_REPLICAS, or node affinity that requires {GPU} NotIn ["false"]'
    return f"{could}, whose subnet is not for GPUs: {way_out}"


def _kept_off(spec: Raw, gpus: Gpus) -> dict[str, Any]:
    tolerations = msgspec.convert(spec.get("tolerations") or (), tuple[Toleration, ...])
    tolerates = gpus is Gpus.UNWANTED and is_tolerated(TAINT, tolerations)
    return requiring(spec, NOT_THERE) if tolerates else {**spec}


def _tolerating(spec: Raw) -> dict[str, Any]:
    held = spec.get("tolerations") or []
    return {**spec} if TOLERATION in held else {**spec, "tolerations": [*held, TOLERATION]}
