"""Admission policies of the release: what the API server refuses to our own ServiceAccounts, and what it changes.

https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cli.explain.matching import compiled, evaluate
from dev.fake_api.server import Denied

Raw = dict[str, Any]
VARIABLE = re.compile(r"\bvariables\.(\w+)")
FIELD = re.compile(r"\b(op|path|value): ")
KIND = "ValidatingAdmissionPolicy"


class Policies:
    """Each with its binding, which denies."""

    def __init__(self, manifests: Iterable[Raw] = ()) -> None:
        self._policies = [inlined(each["spec"]) for each in manifests if each["kind"] == KIND]
        self._for: dict[tuple[str, str, str], list[Raw]] = {}

    def of(self, group: str, resource: str, operation: str) -> Sequence[Raw]:
        """The specs that are for such requests."""
        request = group, resource, operation
        if request not in self._for:
            self._for[request] = [
                spec for spec in self._policies if any(_applies(rule, *request) for rule in _rules(spec))
            ]
        return self._for[request]


def check(spec: Raw, variables: Mapping[str, Any]) -> None:
    """Raises Denied; an expression without a value denies, too, as failurePolicy is Fail."""

    def values(parts: Sequence[Raw], name: str) -> list[tuple[str, bool | str]]:
        return [(each[name], evaluate(each["expression"], variables)) for each in parts]

    conditions = values(spec.get("matchConditions") or (), "name")
    if any(value is False for _, value in conditions):
        return
    for what, value in (*conditions, *values(spec["validations"], "message")):
        if value is not True:
            raise Denied(f"denied by a ValidatingAdmissionPolicy: {what}", 422, "Invalid")


def operations(mutation: Raw, variables: Mapping[str, Any]) -> Any:
    """Of the JSON patch that *mutation* makes; a JSONPatch is a map here, as this CEL does not know the type."""
    expression = FIELD.sub(r'"\1": ', mutation["jsonPatch"]["expression"]).replace("JSONPatch{", "{")
    return compiled(expression).eval(data=dict(variables)).plain_value()


def inlined(spec: Raw) -> Raw:
    """With the expressions of its variables in the place of their names."""
    variables: dict[str, str] = {}

    def whole(expression: str) -> str:
        return VARIABLE.sub(lambda found: f"({variables[found[1]]})", expression)

    for each in spec.get("variables") or ():
        variables[each["name"]] = whole(each["expression"])
    validations = [{**each, "expression": whole(each["expression"])} for each in spec["validations"]]
    return {**spec, "validations": validations}


def _rules(spec: Raw) -> Iterator[Raw]:
    yield from spec["matchConstraints"]["resourceRules"]


def _applies(rule: Raw, group: str, resource: str, operation: str) -> bool:
    wanted = ((rule["apiGroups"], group), (rule["resources"], resource), (rule["operations"], operation))
    return all("*" in some or one in some for some, one in wanted)
