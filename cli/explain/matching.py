"""Whether the API server calls a webhook for a request, and the rule, selector or condition that decides it.

Rules and selectors come first, in any order; then match conditions, of which one that is false skips the webhook
whatever the others say, and an error without one goes by the failure policy. Conditions are evaluated by Google's CEL,
with optional values and strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec

from cli.installation import MatchCondition, RegisteredWebhook, Rule
from kube.resources import Resource
from kube.selectors import Expression, LabelSelector, matches, phrase
from webhook.admission import API_VERSION, KIND, Operation

USER = "kubernetes-admin"
VARIABLES = ("object", "oldObject", "request")
"""Those of match conditions, but for ``authorizer``, which asks the API server's authorizer."""
AUTHORIZER = re.compile(r"\bauthorizer\b")
Labels = Mapping[str, str]
ANY = "*"


@dataclass(frozen=True)
class ApiRequest:
    """A request for an object, raw, as admission sees it."""

    operation: Operation
    resource: Resource
    name: str
    namespace: str = ""
    object: Mapping[str, Any] | None = None
    old_object: Mapping[str, Any] | None = None
    username: str = USER
    dry_run: bool = False

    @property
    def admission(self) -> dict[str, Any]:
        """The variable ``request`` of match conditions: without the objects."""
        given = self.object or self.old_object or {}
        group, _, version = str(given.get("apiVersion", "")).rpartition("/")
        kind = {"group": group, "version": version, "kind": given.get("kind", "")}
        resource = {
            "group": self.resource.group,
            "version": self.resource.version,
            "resource": self.resource.plural,
        }
        names = {"subResource": self.resource.subresource, "name": self.name, "namespace": self.namespace}
        return {
            "uid": "",
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            **{name: value for name, value in names.items() if value},
            "operation": self.operation,
            "userInfo": {"username": self.username},
            "dryRun": self.dry_run,
        }

    def review(self, uid: str) -> bytes:
        """The AdmissionReview that webhooks are sent."""
        objects = {"object": self.object, "oldObject": self.old_object}
        request = self.admission | objects | {"uid": uid}
        return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "request": request})


class NotEvaluable(Exception):
    """Only the API server itself can evaluate the expression; the text says why."""


@dataclass(frozen=True)
class Failed:
    """The expression has no value: the API server goes by the failure policy."""

    message: str


def evaluate(expression: str, variables: Mapping[str, Any]) -> bool | Failed:
    """Of all VARIABLES, None where the request has no such object; NotEvaluable."""
    value = _compiled(expression).eval(data=dict(variables))
    kind = value.type().name()
    if kind == "BOOL":
        return bool(value.value())
    return Failed(_error(value) if kind == "ERROR" else f"its value is of type {kind.lower()}, not bool")


def _error(value: Any) -> str:
    try:
        return str(value.value())
    except TypeError:  # of a kind that has no form in Python: an optional value
        return "its value is not bool"


@cache
def _compiled(expression: str) -> Any:
    if AUTHORIZER.search(expression):
        raise NotEvaluable("it uses authorizer, which only the API server has")
    try:
        return _environment().compile(expression)
    except RuntimeError as error:
        raise NotEvaluable(f"it cannot be compiled here: {str(error).splitlines()[0]}") from None


@cache
def _environment() -> Any:
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_optional, ext_strings
    except ImportError as error:
        raise NotEvaluable(f"the CEL library cannot be loaded: {error}") from None
    return cel.NewEnv(
        variables=dict.fromkeys(VARIABLES, cel.Type.DYN),
        extensions=[ext_optional.ExtOptional(), ext_strings.ExtStrings()],
    )


class Outcome(StrEnum):
    CALLED = "called"
    SKIPPED = "not called"
    REFUSED = "request refused"
    """By the API server itself: a condition has no value, and the failure policy is Fail."""
    UNKNOWN = "unknown"
    """Only the API server can evaluate a condition."""


@dataclass(frozen=True)
class Verdict:
    """*by* is the part of the webhook's configuration that decided, *why* is what it says."""

    webhook: RegisteredWebhook
    outcome: Outcome
    by: str = ""
    why: str = ""


def judge(webhook: RegisteredWebhook, request: ApiRequest, namespace_labels: Labels) -> Verdict:
    """*namespace_labels* are of the request's namespace."""
    if not any(applies(rule, request) for rule in webhook.rules):
        path = "/".join(filter(None, (request.resource.plural, request.resource.subresource)))
        return Verdict(webhook, Outcome.SKIPPED, "rules", f"none is for {request.operation} of {path}")
    if request.namespace and (missed := first_missed(webhook.namespace_selector, namespace_labels)):
        return Verdict(webhook, Outcome.SKIPPED, "namespaceSelector", _about(missed, namespace_labels))
    if why := _missed_by_objects(webhook.object_selector, request):
        return Verdict(webhook, Outcome.SKIPPED, "objectSelector", why)
    return _by_conditions(webhook, request)


def applies(rule: Rule, request: ApiRequest) -> bool:
    resource = request.resource
    return (
        _is_in(rule.operations, request.operation)
        and _is_in(rule.api_groups, resource.group)
        and _is_in(rule.api_versions, resource.version)
        and any(_is_resource(each, resource.plural, resource.subresource) for each in rule.resources)
        and rule.scope in (ANY, "Namespaced" if request.namespace else "Cluster")
    )


def first_missed(selector: LabelSelector, labels: Labels) -> Expression | None:
    """The first requirement of *selector* that *labels* do not meet."""
    equal = (Expression(key, "In", (value,)) for key, value in sorted(selector.match_labels.items()))
    return next((each for each in (*equal, *selector.match_expressions) if not matches(each, labels)), None)


def _missed_by_objects(selector: LabelSelector, request: ApiRequest) -> str:
    """One of the two objects is enough; "" when the selector asks for nothing."""
    given = [_labels(each) for each in (request.object, request.old_object) if each is not None]
    missed = [(first_missed(selector, labels), labels) for labels in given or [{}]]
    if any(expression is None for expression, _ in missed):
        return ""
    first, labels = missed[0]
    return _about(first, labels) if first else ""


def _by_conditions(webhook: RegisteredWebhook, request: ApiRequest) -> Verdict:
    variables = {
        "object": request.object,
        "oldObject": request.old_object,
        "request": request.admission,
    }
    values = [(each, _value(each, variables)) for each in webhook.match_conditions]
    if false := _first(values, lambda value: value is False):
        return _verdict(webhook, Outcome.SKIPPED, false, "is false")
    if unknown := _first(values, lambda value: isinstance(value, NotEvaluable)):
        return _verdict(webhook, Outcome.UNKNOWN, unknown, str(unknown[1]))
    if failed := _first(values, lambda value: isinstance(value, Failed)):
        policy = webhook.failure_policy or "Fail"
        outcome = Outcome.SKIPPED if policy == "Ignore" else Outcome.REFUSED
        why = f"has no value, and failurePolicy is {policy}: {failed[1].message}"
        return _verdict(webhook, outcome, failed, why)
    return Verdict(webhook, Outcome.CALLED)


def _value(condition: MatchCondition, variables: Mapping[str, Any]) -> Any:
    try:
        return evaluate(condition.expression, variables)
    except NotEvaluable as error:
        return error


def _first(values: list[tuple[MatchCondition, Any]], is_it: Callable[[Any], bool]) -> Any:
    return next((each for each in values if is_it(each[1])), None)


def _verdict(
    webhook: RegisteredWebhook, outcome: Outcome, found: tuple[MatchCondition, Any], why: str
) -> Verdict:
    condition = found[0]
    expression = " ".join(condition.expression.split())
    return Verdict(webhook, outcome, f"matchCondition {condition.name}", f"{why}: {expression}")


def _about(missed: Expression, labels: Labels) -> str:
    value = labels.get(missed.key)
    there = f"it has no label {missed.key}" if value is None else f"its label {missed.key} is {value!r}"
    return f"{phrase(missed)}; {there}"


def _labels(raw: Mapping[str, Any]) -> Labels:
    return (raw.get("metadata") or {}).get("labels") or {}


def _is_in(accepted: tuple[str, ...], value: str) -> bool:
    return ANY in accepted or value in accepted


def _is_resource(pattern: str, plural: str, subresource: str) -> bool:
    resource, _, sub = pattern.partition("/")
    return resource in (ANY, plural) and sub in (ANY, subresource)
