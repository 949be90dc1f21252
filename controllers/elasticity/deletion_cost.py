"""A ReplicaSet that shrinks gives up its pods on super nodes first; a cost that the user gave is never touched."""

from __future__ import annotations

from collections.abc import Mapping

from controllers.elasticity.patches import cost_given
from controllers.elasticity.pods import Pod
from webhook.elasticity import COST, OUR_COST


def cost_to_change(pod: Pod, super_nodes: frozenset[str]) -> Mapping[str, str | None]:
    """The annotations to write, None for one to remove, of a pod that has a node."""
    if not pod.active or not pod.node_name or pod.metadata.controller is None:
        return {}
    if pod.node_name in super_nodes:
        return cost_given(pod.metadata.annotations)
    return {COST: None, OUR_COST: None} if _is_ours(pod.metadata.annotations) else {}


def _is_ours(annotations: Mapping[str, str]) -> bool:
    return COST in annotations and annotations.get(OUR_COST) == annotations[COST]
