"""What is written to a pod: merge patches that apply to no other version than the one they were made for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from api.elasticity import (
    ANY,
    BURST,
    COST,
    FENCED_BY,
    GATE,
    LOCAL,
    OUR_COST,
    PLACEMENT,
    REASON,
    SUPER,
    SUPER_COST,
    TAINT,
)
from controllers.elasticity.nodes import NO_OTHERS, ONLY_GPUS, Gpus, preferring, tolerating, with_gpus
from controllers.elasticity.pods import Pod, spec_of
from kube.selectors import ON_SUPER_NODES, kept_off_super_nodes, requiring

TOLERATION = {"key": TAINT.key, "operator": "Exists", "effect": TAINT.effect}

Raw = Mapping[str, Any]
Patch = Mapping[str, Any]


class Kind(StrEnum):
    LOCAL = "place locally"
    SUPER = "place on a super node"
    ANY = "leave to the scheduler"
    BURST = "allow on super nodes"
    COST = "set the deletion cost"
    WAIT = "say what it waits for"
    DELETE = "delete"


TO_SUPER_NODES = (Kind.SUPER, Kind.ANY, Kind.BURST)
"""After these, a pod may come to a super node."""


@dataclass(frozen=True)
class Action:
    """*patch* is for *pod* as it was; DELETE has none.

    After *doubts* tries it is unknown whether one arrived: one may until *doubtful_until*, on the writer's clock.
    """

    kind: Kind
    pod: Pod
    why: str = ""
    patch: Patch | None = None
    doubts: int = 0
    doubtful_until: float = 0.0

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid


def to_local_nodes(pod: Pod, why: str, *, pin: bool, gpus: Gpus) -> Patch:
    """A pod that tolerates super nodes is kept off them; any other only to *pin* it, else it may burst.

    It cannot get affinity any more when it bursts: so one that asks for GPUs gets it now.
    """
    held = spec = spec_of(pod)
    if pin or pod.tolerates:
        spec = kept_off_super_nodes(held)
    elif gpus:
        spec = requiring(held, NO_OTHERS)
    return _patch(pod, {PLACEMENT: LOCAL, REASON: why}, _ungated(held) | _changed(held, spec))


def to_super_node(
    pod: Pod, why: str, *, in_order: bool, tiers: Sequence[int], gpus: Gpus, avoided: Collection[str]
) -> Patch:
    """*tiers* of super nodes that there are, the preferred one first; to none of those *avoided*."""
    held, spec = spec_of(pod), preferring(as_sent(pod, gpus), tiers)
    for node in sorted(avoided):
        spec = requiring(spec, {"key": "metadata.name", "operator": "NotIn", "values": [node]}, "matchFields")
    cost = cost_given(pod) if in_order else {}
    return _patch(pod, {PLACEMENT: SUPER, REASON: why, **cost}, _ungated(held) | _changed(held, spec))


def to_any_node(pod: Pod, why: str, gpus: Gpus) -> Patch:
    """Take the gate away and nothing else, unless there are subnets for GPUs."""
    held = spec_of(pod)
    spec = _ungated(held) | _changed(held, with_gpus(held, gpus, NO_OTHERS))
    return _patch(pod, {PLACEMENT: ANY, REASON: why}, spec)


def burst(pod: Pod, why: str, *, in_order: bool, also: Sequence[Raw], gpus: Gpus) -> Patch:
    """The cost comes with the tolerations, *also* these: a ReplicaSet may shrink as soon as the pod runs."""
    cost = cost_given(pod) if in_order else {}
    spec = _changed(spec_of(pod), tolerating(as_burst(pod, gpus), *also))
    return _patch(pod, {BURST: "allowed", REASON: why, **cost}, spec)


def as_is(pod: Pod, _: Gpus) -> dict[str, Any]:
    return spec_of(pod)


def as_sent(pod: Pod, gpus: Gpus) -> dict[str, Any]:
    """Its spec, raw, as it would be on super nodes only."""
    return with_gpus(_tolerant(requiring(spec_of(pod), ON_SUPER_NODES), pod), gpus, ONLY_GPUS)


def as_burst(pod: Pod, gpus: Gpus) -> dict[str, Any]:
    """Its spec, raw, as it would be when it is allowed on super nodes."""
    return with_gpus(_tolerant(spec_of(pod), pod), gpus, NO_OTHERS if pod.gated else None)


def is_kept_off(pod: Pod) -> bool:
    """Whether its affinity keeps it off super nodes, set by us or by the user."""
    spec = spec_of(pod)
    return kept_off_super_nodes(spec) == spec


def explained(pod: Pod, why: str) -> Patch | None:
    """None for a pod that says so already."""
    return None if pod.metadata.annotations.get(REASON) == why else _patch(pod, {REASON: why}, {})


def opened(pod: Pod, why: str) -> Patch:
    """Without a placement: the scheduler treats the pod as any other."""
    return _patch(pod, {REASON: why}, _ungated(spec_of(pod)))


def fenced(pod: Pod, identity: str) -> Patch:
    """Changes nothing but the version, so that what was decided before comes too late."""
    return _patch(pod, {FENCED_BY: identity}, {})


def cost_change(pod: Pod, super_nodes: frozenset[str]) -> Patch | None:
    """The deletion cost that a pod with a node lacks, or has no longer; None when nothing is to change."""
    if not pod.active or not pod.node_name:
        return None
    annotations = pod.metadata.annotations
    change: Mapping[str, str | None] = {}
    if pod.node_name in super_nodes:
        change = cost_given(pod)
    elif COST in annotations and annotations.get(OUR_COST) == annotations[COST]:
        change = {COST: None, OUR_COST: None}
    return _patch(pod, change, {}) if change else None


def cost_given(pod: Pod) -> dict[str, str]:
    """Nothing when the user gave a cost, or took ours away, and for a pod that no controller deletes."""
    is_set = not pod.metadata.annotations.keys().isdisjoint((COST, OUR_COST))
    return {} if is_set or pod.metadata.controller is None else {COST: SUPER_COST, OUR_COST: SUPER_COST}


def _ungated(spec: Mapping[str, Any]) -> dict[str, Any]:
    gates = spec.get("schedulingGates") or ()
    return {"schedulingGates": [gate for gate in gates if gate.get("name") != GATE]}


def _tolerant(spec: Raw, pod: Pod) -> dict[str, Any]:
    return {**spec} if pod.tolerates else tolerating(spec, TOLERATION)


def _changed(held: Raw, spec: Raw) -> dict[str, Any]:
    """The fields that a placement may change, as far as they differ."""
    return {key: spec[key] for key in ("affinity", "tolerations") if spec.get(key) != held.get(key)}


def _patch(pod: Pod, annotations: Mapping[str, str | None], spec: Mapping[str, Any]) -> Patch:
    patch: dict[str, Any] = {"metadata": {**pod.metadata.guard, "annotations": annotations}}
    return {**patch, "spec": spec} if spec else patch
