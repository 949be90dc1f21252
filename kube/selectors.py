"""Label selectors, node selectors, taints and tolerations, matched as the API server and the scheduler do.

A pod is bound to super nodes, or kept off them, by required node affinity, which is only ever tightened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kube.types import INSTANCE_TYPE, SUPER_NODE, Taint, Toleration, Value

Raw = Mapping[str, Any]
ON_SUPER_NODES, OFF_SUPER_NODES = (
    {"key": INSTANCE_TYPE, "operator": operator, "values": [SUPER_NODE]} for operator in ("In", "NotIn")
)
INTEGER = re.compile("[+-]?[0-9]+")
REPELLING = ("NoSchedule", "NoExecute")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
"""The field of an affinity that the scheduler must meet."""
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
"""The field of an affinity that adds to a node's score."""


class Expression(Value, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class Term(Value, frozen=True):
    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


class NodeSelector(Value, frozen=True):
    # Kubernetes writes an empty list as null here.
    node_selector_terms: tuple[Term, ...] | None = ()


class NodeAffinity(Value, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name=REQUIRED)


class LabelSelector(Value, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Expression, ...] = ()


def selects_labels(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """An absent selector selects nothing, an empty one everything."""
    return (
        selector is not None
        and selector.match_labels.items() <= labels.items()
        and all(matches(each, labels) for each in selector.match_expressions)
    )


def selects(selector: NodeSelector, name: str, labels: Mapping[str, str]) -> bool:
    """One matching term is enough; a selector without terms selects nothing."""
    return any(_selects(term, name, labels) for term in selector.node_selector_terms or ())


def matches(expression: Expression, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression.key), expression.values
    match expression.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return _compare(value, operator, values)
        case _:
            return False


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    exists = toleration.operator == "Exists"
    same_key = toleration.key == taint.key or (exists and not toleration.key)
    same_value = exists or (toleration.operator in ("", "Equal") and toleration.value == taint.value)
    return same_key and same_value and toleration.effect in ("", taint.effect)


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(tolerates(each, taint) for each in tolerations)


def describe(selector: NodeSelector) -> str:
    """For example ``zone In [a, b] and gpu Exists``."""
    return " or ".join(map(_describe, selector.node_selector_terms or ())) or "no term"


def _selects(term: Term, name: str, labels: Mapping[str, str]) -> bool:
    fields = {"metadata.name": name}
    met = [matches(each, labels) for each in term.match_expressions]
    met += [matches(each, fields) for each in term.match_fields]
    return bool(met) and all(met)


def _compare(value: str | None, operator: str, values: tuple[str, ...]) -> bool:
    try:
        left, right = _integer(value or ""), _integer(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right


def _integer(text: str) -> int:
    """As Go reads it: of 64 bits, without spaces and underscores. ValueError."""
    if INTEGER.fullmatch(text) and -(1 << 63) <= (found := int(text)) < 1 << 63:
        return found
    raise ValueError(text)


def _describe(term: Term) -> str:
    expressions = (*term.match_expressions, *term.match_fields)
    return " and ".join(map(phrase, expressions)) or "an empty term"


def phrase(expression: Expression) -> str:
    values = f" [{', '.join(expression.values)}]" if expression.values else ""
    return f"{expression.key} {expression.operator}{values}"


def kept_off_super_nodes(spec: Raw) -> dict[str, Any]:
    """*spec* of a pod, raw, so that it runs on local nodes only."""
    return requiring(spec, OFF_SUPER_NODES)


def requiring(spec: Raw, expression: Raw, of: str = "matchExpressions") -> dict[str, Any]:
    """*spec* of a pod, raw, so that it runs on nodes only whose labels, or fields, the *expression* matches."""
    affinity = spec.get("affinity") or {}
    of_node = affinity.get("nodeAffinity") or {}
    required = _required(of_node.get(REQUIRED), expression, of)
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**of_node, REQUIRED: required}}}


def _required(selector: Raw | None, expression: Raw, of: str) -> dict[str, Any]:
    if selector is None:
        return {"nodeSelectorTerms": [{of: [expression]}]}
    terms = selector.get("nodeSelectorTerms")
    # One term that matches is enough for the scheduler, so each of them has to say it.
    return {**selector, "nodeSelectorTerms": terms and [_term(each, expression, of) for each in terms]}


def _term(term: Raw, expression: Raw, of: str) -> dict[str, Any]:
    expressions = term.get(of) or []
    # An empty term matches no node; with an expression it would match many.
    is_empty = not term.get("matchExpressions") and not term.get("matchFields")
    if is_empty or expression in expressions:
        return {**term}
    return {**term, of: [*expressions, expression]}
