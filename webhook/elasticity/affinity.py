"""A pod is bound to super nodes, or kept off them, by required node affinity, which is only ever tightened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from kube.selectors import REQUIRED
from kube.types import INSTANCE_TYPE, SUPER_NODE

Raw = Mapping[str, Any]


def bound_to_super_nodes(spec: Raw) -> dict[str, Any]:
    """*spec* of a pod, raw, so that it runs on super nodes only."""
    return requiring(spec, _expression("In"))


def kept_off_super_nodes(spec: Raw) -> dict[str, Any]:
    """*spec* of a pod, raw, so that it runs on local nodes only."""
    return requiring(spec, _expression("NotIn"))


def requiring(spec: Raw, expression: Raw) -> dict[str, Any]:
    """*spec* of a pod, raw, so that it runs on nodes only whose labels the *expression* matches."""
    affinity = spec.get("affinity") or {}
    of_node = affinity.get("nodeAffinity") or {}
    required = _required(of_node.get(REQUIRED), expression)
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**of_node, REQUIRED: required}}}


def _required(selector: Raw | None, expression: Raw) -> dict[str, Any]:
    if selector is None:
        return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    terms = selector.get("nodeSelectorTerms")
    # One term that matches is enough for the scheduler, so each of them has to say it.
    return {**selector, "nodeSelectorTerms": terms and [_term(each, expression) for each in terms]}


def _term(term: Raw, expression: Raw) -> dict[str, Any]:
    expressions = term.get("matchExpressions") or []
    # An empty term matches no node; with an expression it would match many.
    is_empty = not expressions and not term.get("matchFields")
    if is_empty or expression in expressions:
        return {**term}
    return {**term, "matchExpressions": [*expressions, expression]}


def _expression(operator: Literal["In", "NotIn"]) -> dict[str, Any]:
    return {"key": INSTANCE_TYPE, "operator": operator, "values": [SUPER_NODE]}
