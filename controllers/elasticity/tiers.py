"""Tiers of super nodes: while one of the first tier has room, the scheduler prefers it to those of later tiers.

Two of its scores say so, because neither is enough alone: topology spread, which it applies to pods of workloads by
default, weighs as much as node affinity. A pod that is pending cannot get an affinity any more, but taints count.
With a single tier there is neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kube.selectors import PREFERRED
from kube.types import Node, Taint

TIER = "drawbridge.io/tier"
"""The label of a super node with the tier of its subnet; a node without it is of the first."""
AFTER = "drawbridge.io/after-tier-"
"""How the keys of taints begin that make a super node less preferred than those of that tier."""
AVOIDED = "PreferNoSchedule"
FIRST = 1
WEIGHTS = (100, 10, 1)
"""Of what keeps a pod off all tiers after the first one, after the second one, and so on."""

Raw = Mapping[str, Any]


def tier_labels(tier: int, tiers: Sequence[int]) -> dict[str, str]:
    return {TIER: str(tier)} if len(tiers) > 1 else {}


def tier_taints(tier: int, tiers: Sequence[int]) -> list[Taint]:
    """One for each tier before: the scheduler prefers nodes with fewer of them, and refuses none."""
    return [Taint(key=f"{AFTER}{each}", effect=AVOIDED) for each in tiers if each < tier]


def tolerations(first: int | None, tiers: Sequence[int]) -> list[Raw]:
    """Of the taints that do not set off the *first* tier with room, so that this one outweighs topology spread."""
    keys = [f"{AFTER}{each}" for each in tiers[:-1] if each != first] if first and len(tiers) > 2 else ()
    return [{"key": key, "operator": "Exists", "effect": AVOIDED} for key in keys]


def is_tier_taint(taint: Taint) -> bool:
    return taint.key.startswith(AFTER)


def tier_of(node: Node) -> int:
    said = node.metadata.labels.get(TIER, "")
    return int(said) if said.isascii() and said.isdigit() else FIRST


def said(first: int | None) -> str:
    """As reasons end, where there are several tiers."""
    return f", tier {first} first" if first else ""


def preferring(spec: Raw, tiers: Sequence[int]) -> dict[str, Any]:
    """*spec* of a pod, raw, with preferences for the first of *tiers* added to those that it has."""
    affinity = spec.get("affinity") or {}
    of_node = affinity.get("nodeAffinity") or {}
    held = of_node.get(PREFERRED) or []
    if not (missing := [term for term in _terms(tiers) if term not in held]):
        return {**spec}
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**of_node, PREFERRED: [*held, *missing]}}}


def _terms(tiers: Sequence[int]) -> list[Raw]:
    """By what they avoid, so that local nodes are as good as super nodes of the first tier."""
    later = [[str(tier) for tier in tiers[number:]] for number in range(1, len(tiers))]
    return [
        {
            "weight": weight,
            "preference": {"matchExpressions": [{"key": TIER, "operator": "NotIn", "values": values}]},
        }
        for weight, values in zip(WEIGHTS, later, strict=False)
    ]
