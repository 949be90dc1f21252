"""Whether the API server calls a webhook for a request, and the rule, selector or condition that decides it.

Rules and selectors come first, in any order; then match conditions, of which one that is false skips the webhook
whatever the others say, and an error without one goes by the failure policy. Conditions are evaluated by Google's CEL,
with optional values and strings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec

from cli.installation import RegisteredWebhook, Rule
from kube.resources import Resource
from kube.selectors import Expression, LabelSelector, matches, phrase
from webhook.admission import API_VERSION, KIND, Decision, Operation

USER = "kubernetes-admin"
VARIABLES = ("object", "oldObject", "request")
"""Those of match conditions, but for ``authorizer``, which asks the API server's authorizer."""
AUTHORIZER = re.compile(r"\bauthorizer\b")
Labels = Mapping[str, str]
ANY = "*"
RULES = "rules"


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
    def removes_a_pod(self) -> bool:
        asked = self.operation, self.resource.plural, self.resource.subresource
        return asked in (("DELETE", "pods", ""), ("CREATE", "pods", "eviction"))

    @property
    def admission(self) -> dict[str, Any]:
        """The variable ``request`` of match conditions: without the objects."""
        given, asked = self.object or self.old_object or {}, self.resource
        group, _, version = str(given.get("apiVersion", "")).rpartition("/")
        kind = {"group": group, "version": version, "kind": given.get("kind", "")}
        resource = {"group": asked.group, "version": asked.version, "resource": asked.plural}
        names = {"subResource": asked.subresource, "name": self.name, "namespace": self.namespace}
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


def evaluate(expression: str, variables: Mapping[str, Any]) -> bool | str:
    """Of all VARIABLES, None where the request has no such object; NotEvaluable.

    Text says why it has no value: the API server goes by the failure policy.
    """
    value = compiled(expression).eval(data=dict(variables))
    kind = value.type().name()
    if kind == "BOOL":
        return bool(value.value())
    if kind != "ERROR":
        return f"its value is of type {kind.lower()}, not bool"
    try:
        return str(value.value())
    except TypeError:  # of a kind that has no form in Python: an optional value
        return "its value is not bool"


@cache
def compiled(expression: str) -> Any:
    """NotEvaluable."""
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
    """*by* is the part of the webhook's configuration that decided, and *expression* what stands there.

    *why* is that in words, and empty for a match condition that is false until they are known. *decision* is the
    webhook's own, once it was asked.
    """

    webhook: RegisteredWebhook
    outcome: Outcome
    by: str = ""
    why: str = ""
    expression: str = ""
    decision: Decision | None = None

    @property
    def reason(self) -> str:
        why = self.why or "its expression is false"
        return why if self.by == RULES else f"{why} ({self.by})"

    @property
    def effect(self) -> str:
        """In a line."""
        if self.decision is None:
            return f"{self.outcome}: {self.reason}"
        if_called = "if it is called: " if self.outcome is Outcome.UNKNOWN else ""
        return if_called + effect_of(self.decision)


def effect_of(decision: Decision) -> str:
    if not decision.allowed:
        return f"denied ({decision.code}): {decision.message}"
    if skipped := decision.audit.get("skipped"):
        return f"allowed, nothing to do: {skipped}"
    done = [f"{name}: {value}" for name, value in decision.audit.items()]
    if decision.patch and not done:
        done = [f"changed: {', '.join(sorted({str(each['path']) for each in decision.patch}))}"]
    return "allowed; " + "; ".join((*done, *decision.warnings)) if done or decision.warnings else "allowed"


def judge(webhook: RegisteredWebhook, request: ApiRequest, namespace_labels: Labels) -> Verdict:
    """*namespace_labels* are of the request's namespace."""
    if not any(applies(rule, request) for rule in webhook.rules):
        path = "/".join(filter(None, (request.resource.plural, request.resource.subresource)))
        return Verdict(webhook, Outcome.SKIPPED, RULES, f"it has no rule for {request.operation} of {path}")
    if request.namespace and (found := missed(webhook.namespace_selector, namespace_labels)):
        why = f"its namespace {lack(found, namespace_labels)}"
        return Verdict(webhook, Outcome.SKIPPED, "namespaceSelector", why, phrase(found))
    # One of the two objects is enough.
    given = [each for each in (request.object, request.old_object) if each is not None] or [{}]
    labels = [(each.get("metadata") or {}).get("labels") or {} for each in given]
    first, *others = (missed(webhook.object_selector, each) for each in labels)
    if first and all(others):
        why = f"it {lack(first, labels[0])}"
        return Verdict(webhook, Outcome.SKIPPED, "objectSelector", why, phrase(first))
    return _by_conditions(webhook, request)


def applies(rule: Rule, request: ApiRequest) -> bool:
    resource = request.resource
    patterns = (each.partition("/") for each in rule.resources)
    return (
        not {ANY, request.operation}.isdisjoint(rule.operations)
        and not {ANY, resource.group}.isdisjoint(rule.api_groups)
        and not {ANY, resource.version}.isdisjoint(rule.api_versions)
        and any(
            plural in (ANY, resource.plural) and sub in (ANY, resource.subresource)
            for plural, _, sub in patterns
        )
        and rule.scope in (ANY, "Namespaced" if request.namespace else "Cluster")
    )


def missed(selector: LabelSelector, labels: Labels) -> Expression | None:
    """The first requirement of *selector* that *labels* do not meet."""
    equal = (Expression(key, "In", (value,)) for key, value in sorted(selector.match_labels.items()))
    return next((each for each in (*equal, *selector.match_expressions) if not matches(each, labels)), None)


def lack(requirement: Expression, labels: Labels) -> str:
    """What *labels*, which do not meet it, have in its place."""
    key, value = requirement.key, labels.get(requirement.key)
    return f"has no label {key}" if value is None else f"is labelled {key}={value}"


def _by_conditions(webhook: RegisteredWebhook, request: ApiRequest) -> Verdict:
    """The first that is false decides, else the first that cannot be evaluated here, else the first without a value."""
    variables = {"object": request.object, "oldObject": request.old_object, "request": request.admission}
    policy = webhook.failure_policy or "Fail"
    found: dict[str, Verdict] = {}
    for condition in webhook.match_conditions:
        try:
            value = evaluate(condition.expression, variables)
        except NotEvaluable as error:
            rank, outcome, why = "unknown", Outcome.UNKNOWN, str(error)
        else:
            if value is True:
                continue
            rank, outcome, why = "false", Outcome.SKIPPED, ""
            if value is not False:
                rank, outcome = "failed", Outcome.SKIPPED if policy == "Ignore" else Outcome.REFUSED
                why = f"it has no value, and failurePolicy is {policy}: {value}"
        by, expression = f"matchCondition {condition.name}", " ".join(condition.expression.split())
        found.setdefault(rank, Verdict(webhook, outcome, by, why, expression))
    deciding = (found[rank] for rank in ("false", "unknown", "failed") if rank in found)
    return next(deciding, Verdict(webhook, Outcome.CALLED))
