"""Whether the API server calls a webhook: rules, selectors and conditions, each named when it decides."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cli.explain.matching import ApiRequest, Outcome, _environment, judge
from cli.installation import RegisteredWebhook
from kube.resources import NODES, PODS

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"app": "web"}}}
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["pods"],
    "operations": ["DELETE"],
    "scope": "Namespaced",
}
DELETION = ApiRequest("DELETE", PODS, "a", "shop", old_object=POD)
EVICTION = replace(DELETION, operation="CREATE", resource=PODS.sub("eviction"))
ENABLED = {"key": "ip-reserve", "operator": "In", "values": ["enabled"]}


def webhook(**fields: Any) -> RegisteredWebhook:
    return msgspec.convert({"name": "a.example.com", "rules": [RULE], **fields}, RegisteredWebhook)


def conditions(*expressions: str, **fields: Any) -> RegisteredWebhook:
    named = [{"name": f"c{number}", "expression": each} for number, each in enumerate(expressions)]
    return webhook(matchConditions=named, **fields)


@pytest.mark.parametrize(
    ("rule", "request_", "expected"),
    [
        pytest.param({}, DELETION, True, id="exactly"),
        pytest.param({"operations": ["CREATE", "*"]}, DELETION, True, id="any operation"),
        pytest.param({"operations": ["CREATE"]}, DELETION, False, id="another operation"),
        pytest.param({"apiGroups": ["*"], "apiVersions": ["*"]}, DELETION, True, id="any group and version"),
        pytest.param({"apiGroups": ["apps"]}, DELETION, False, id="another group"),
        pytest.param({"apiVersions": ["v2"]}, DELETION, False, id="another version"),
        pytest.param({"resources": ["*"]}, DELETION, True, id="any resource"),
        pytest.param({"operations": ["*"], "resources": ["*"]}, EVICTION, False, id="no subresource by *"),
        pytest.param({"operations": ["*"], "resources": ["*/*"]}, EVICTION, True, id="any subresource"),
        pytest.param({"operations": ["*"], "resources": ["pods/*"]}, EVICTION, True, id="those of pods"),
        pytest.param({"operations": ["*"]}, EVICTION, False, id="a resource is not its subresource"),
        pytest.param({"operations": ["*"], "resources": ["pods/eviction"]}, EVICTION, True, id="this one"),
        pytest.param({"scope": "Cluster"}, DELETION, False, id="for the cluster's own"),
        pytest.param({"scope": "*"}, DELETION, True, id="any scope"),
    ],
)
def test_a_rule_names_requests(rule: dict[str, Any], request_: ApiRequest, expected: bool) -> None:
    verdict = judge(webhook(rules=[RULE | rule]), request_, {})

    assert (verdict.outcome is Outcome.CALLED) is expected
    assert verdict.by == ("" if expected else "rules")


def test_the_requirement_that_the_namespace_does_not_meet_is_named() -> None:
    asked = webhook(namespaceSelector={"matchLabels": {"a": "b"}, "matchExpressions": [ENABLED]})

    assert judge(asked, DELETION, {"a": "b", "ip-reserve": "enabled"}).outcome is Outcome.CALLED
    verdict = judge(asked, DELETION, {"a": "b", "ip-reserve": "no"})
    assert (verdict.outcome, verdict.by) == (Outcome.SKIPPED, "namespaceSelector")
    assert verdict.why == "its namespace is labelled ip-reserve=no"
    assert verdict.expression == "ip-reserve In [enabled]"
    assert judge(asked, DELETION, {"ip-reserve": "enabled"}).why == "its namespace has no label a"


def test_a_namespace_selector_does_not_concern_what_is_in_no_namespace() -> None:
    rule = RULE | {"resources": ["nodes"], "scope": "*"}
    asked = webhook(rules=[rule], namespaceSelector={"matchExpressions": [ENABLED]})

    assert judge(asked, ApiRequest("DELETE", NODES, "n", old_object=POD), {}).outcome is Outcome.CALLED


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [("web", "web", True), ("web", "db", True), ("db", "web", True), ("db", "db", False)],
)
def test_one_of_both_objects_must_meet_the_object_selector(old: str, new: str, expected: bool) -> None:
    rule = RULE | {"operations": ["UPDATE"]}
    asked = webhook(rules=[rule], objectSelector={"matchLabels": {"app": "web"}})
    before, after = ({"metadata": {"labels": {"app": each}}} for each in (old, new))
    change = ApiRequest("UPDATE", PODS, "a", "shop", object=after, old_object=before)

    assert (judge(asked, change, {}).outcome is Outcome.CALLED) is expected


@pytest.mark.parametrize(
    ("expressions", "policy", "outcome", "by"),
    [
        pytest.param(["true", "request.operation == 'DELETE'"], "Fail", Outcome.CALLED, "", id="all true"),
        pytest.param(["true", "object != null"], "Fail", Outcome.SKIPPED, "c1", id="a false one"),
        pytest.param(["oldObject.nothing", "false"], "Fail", Outcome.SKIPPED, "c1", id="false before error"),
        pytest.param(
            ["true", "oldObject.nothing"], "Fail", Outcome.REFUSED, "c1", id="an error fails closed"
        ),
        pytest.param(["true", "oldObject.nothing"], "Ignore", Outcome.SKIPPED, "c1", id="and open"),
        pytest.param(["oldObject.metadata.name"], "Fail", Outcome.REFUSED, "c0", id="no bool"),
        pytest.param(["oldObject.?metadata"], "Fail", Outcome.REFUSED, "c0", id="an optional value"),
        pytest.param(["authorizer.group('').check('get')"], "Fail", Outcome.UNKNOWN, "c0", id="authorizer"),
        pytest.param(["isQuantity('1')"], "Fail", Outcome.UNKNOWN, "c0", id="a function of Kubernetes"),
        pytest.param(["isQuantity('1')", "false"], "Fail", Outcome.SKIPPED, "c1", id="false before unknown"),
        pytest.param(["isQuantity('1')", "oldObject.a"], "Fail", Outcome.UNKNOWN, "c0", id="unknown first"),
    ],
)
def test_conditions_decide_as_in_the_api_server(
    expressions: list[str], policy: str, outcome: Outcome, by: str
) -> None:
    verdict = judge(conditions(*expressions, failurePolicy=policy), DELETION, {})

    assert verdict.outcome is outcome
    assert verdict.by == (f"matchCondition {by}" if by else "")


def test_without_the_library_no_condition_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the image."""
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    _environment.cache_clear()

    verdict = judge(conditions("oldObject != null && 'without' == 'the library'"), DELETION, {})

    assert verdict.outcome is Outcome.UNKNOWN
    assert "the CEL library cannot be loaded" in verdict.why


def test_the_expression_that_decided_is_shown_in_a_line() -> None:
    verdict = judge(conditions("object != null\n  || false"), DELETION, {})

    assert verdict.expression == "object != null || false"
    assert verdict.effect == "not called: its expression is false (matchCondition c0)"
