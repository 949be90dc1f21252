"""The admission of IngressDaemonSets: golden cases through both halves, each defaulted a second time."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dev.lab.install import merged
from kube.errors import Forbidden, KubeError, Unreachable
from tests.ingress_daemonset import DATA, Raw, Templates, outcome, raw, request, webhooks
from tests.tables import table
from webhook.admission import ReviewError
from webhook.ingress_daemonset.validate import PortUser

SELECTOR = {"matchLabels": {"app": "web"}}
CASES = sorted((DATA / "ingress_daemonset").glob("*.yaml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    defaults, rules = webhooks(*port_users(case), **case.get("settings", {}))
    new, old = raw(case.get("spec"), **case.get("metadata", {})), raw(case["old"]) if "old" in case else None
    question = request(new, old)

    stored, warned = outcome(new, question, first := defaults.review(question, deadline=inf))

    decision = rules.review(request(stored, old), deadline=inf)
    skipped = case.get("skipped")
    assert (first.audit.get("skipped"), decision.audit.get("skipped")) == (skipped, skipped)
    assert faults(decision.message) == case.get("denied", [])
    assert decision.allowed == ("denied" not in case)
    assert [*warned, *decision.warnings] == case.get("warnings", [])
    assert merged(stored["spec"], case.get("stored", {})) == stored["spec"]
    assert not {*case.get("absent", [])} & rolling(stored).keys()
    assert defaults.review(request(stored, old), deadline=inf).patch == ()
    assert skipped or defaults.review(request(stored), deadline=inf).patch == ()


def port_users(case: dict[str, Any]) -> list[PortUser]:
    return msgspec.convert(case.get("port_users", []), list[PortUser])


def faults(message: str) -> list[str]:
    """Each begins with its field."""
    return re.split("; (?=spec)", message.partition(" is invalid: ")[2]) if message else []


def rolling(stored: Raw) -> dict[str, Any]:
    return stored["spec"].get("updateStrategy", {}).get("rollingUpdate", {})


def test_a_refusal_is_one_of_an_invalid_object() -> None:
    _, rules = webhooks()

    decision = rules.review(request(raw({"minReadySeconds": 600})), deadline=inf)

    assert (decision.code, decision.reason) == (422, "Invalid")
    assert decision.message.startswith('IngressDaemonSet "web" is invalid: spec.progressDeadlineSeconds: ')


@pytest.mark.parametrize(
    "spec",
    [
        {"updateStrategy": "none"},
        {"podsPerNode": "two"},
        {"template": {"metadata": "web"}},
        {"updateStrategy": {"rollingUpdate": {"maxUnavailableNodes": [1]}}},
    ],
)
def test_what_cannot_be_read_is_left_to_the_schema(spec: Raw) -> None:
    defaults, _ = webhooks()

    decision = defaults.review(request(raw(spec)), deadline=inf)

    assert decision.audit == {"skipped": "left to the schema to refuse"}
    assert decision.allowed
    assert decision.patch == ()


def test_what_the_schema_let_pass_though_it_cannot_be_read_is_named() -> None:
    _, rules = webhooks()

    with pytest.raises(ReviewError, match=r"request\.object .*podsPerNode"):
        rules.review(request(raw({"podsPerNode": "two"})), deadline=inf)


def test_what_was_stored_and_cannot_be_read_may_be_put_right() -> None:
    defaults, rules = webhooks()
    question = request(raw(), raw({"podsPerNode": "two"}))

    stored, _ = outcome(raw(), question, defaults.review(question, deadline=inf))

    assert stored["spec"]["podsPerNode"] == 1
    assert rules.review(request(stored, raw({"podsPerNode": "two"})), deadline=inf).allowed


@pytest.mark.parametrize("error", [Unreachable("no answer"), Forbidden(403, "Forbidden", "not you")])
def test_what_could_not_be_read_is_warned_of(error: KubeError) -> None:
    _, rules = webhooks(error, templates=Templates(error))

    decision = rules.review(
        request(raw({"healthCheckNodePorts": [10080], "selector": SELECTOR})), deadline=inf
    )

    assert decision.allowed
    assert decision.warnings == (
        f"healthCheckNodePorts were not compared with others': {error}",
        f"unknown fields of spec.template were not looked for: {error}",
    )


def test_without_health_ports_no_others_are_read() -> None:
    _, rules = webhooks(Unreachable("no answer"))

    assert rules.review(request(raw({"selector": SELECTOR})), deadline=inf).warnings == ()


def test_the_webhooks_have_separate_names_and_paths_and_fail_closed() -> None:
    assert [(webhook.name, webhook.path, webhook.fails_open()) for webhook in webhooks()] == [
        ("ingress_daemonset_defaults", "/mutate/ingressdaemonsets", False),
        ("ingress_daemonset", "/validate/ingressdaemonsets", False),
    ]


LARGE = raw({"template": {"spec": {"containers": [{"name": "web", "image": "nginx", "env": [{}] * 20_000}]}}})


def test_a_spec_that_is_too_large_to_be_judged_is_refused_before_it_is_decoded() -> None:
    for webhook in webhooks():
        with pytest.raises(ReviewError, match=r"request\.object\.spec has about .* at most 20000 are read"):
            webhook.review(request(LARGE), deadline=inf)


@table(
    "new, old, skipped",
    {
        "a label or a finalizer": (LARGE | {"status": {"a": 1}}, LARGE, "same spec"),
        "deletion": (merged(LARGE, {"metadata": {"deletionTimestamp": "now"}}), raw(), "being deleted"),
        "a correction": (raw(), LARGE, None),
        "a large status": (raw() | {"status": {"nodes": [{}] * 20_000}}, None, None),
    },
)
def test_a_large_object_does_not_stand_in_the_way_of_other_changes(
    new: Raw, old: Raw | None, skipped: str | None
) -> None:
    for webhook in webhooks():
        decision = webhook.review(request(new, old), deadline=inf)
        assert (decision.allowed, decision.audit.get("skipped")) == (True, skipped)
