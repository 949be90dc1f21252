"""Alerts and dashboards: they query series that exist, each alert has cases for promtool, and a runbook."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from typing import Any

import pytest
import yaml

from tests import facts, monitoring
from tests.monitoring import CASES, DASHBOARDS, OF_OTHERS, OF_TARGETS, alerts, dashboard, expressions, groups
from tests.pages import ROOT

RUNBOOKS = ROOT / "docs" / "how-to" / "runbooks"
ELSEWHERE = {"TOTAL_EIP_QUOTA", "DAILY_EIP_APPLY", "no_error", ".+[.]drawbridge[.]io", "@job@", "@namespace@"}
"""Values of labels that the code does not name: the cloud's, the API server's, the chart's."""


def words(node: ast.AST) -> str | None:
    """What may become the value of a label: a text, a keyword, or the name of a class of errors."""
    match node:
        case ast.Constant(value=str(text)) | ast.keyword(arg=str(text)):
            return text
        case ast.ClassDef(name=name):
            return re.sub("(?<!^)(?=[A-Z])", "_", name).lower()
    return None


@functools.cache
def known_words() -> set[str | None]:
    return {*map(words, facts.nodes())}


@pytest.mark.parametrize("expression", expressions().values(), ids=expressions())
def test_series_labels_and_values_in_a_query_exist(expression: str) -> None:
    asked, known = monitoring.series(expression), monitoring.labels()
    matchers = monitoring.matchers(expression)

    assert asked
    assert asked <= facts.series() | OF_OTHERS.keys()
    assert {(name, label) for name, label, _ in matchers if label not in known[name] | OF_TARGETS} == set()
    everything = set().union(*(known[name] for name in asked))
    assert monitoring.grouped_by(expression) <= everything | OF_TARGETS | {"webhook"}
    values = {
        each for _, _, value in matchers for each in ([value] if value in ELSEWHERE else value.split("|"))
    }
    assert {each for each in values - ELSEWHERE if not each.startswith("$")} <= known_words()


def test_every_known_word_of_the_query_language_is_used() -> None:
    """Otherwise one of them might hide a series."""
    text = " ".join(expressions().values())

    assert [word for word in monitoring.WORDS - {"label_values"} if not re.search(rf"\b{word}\b", text)] == []


@pytest.mark.parametrize("rule", alerts().values(), ids=alerts())
def test_an_alert_has_its_severity_and_texts(rule: dict[str, Any]) -> None:
    assert rule["alert"].startswith("Drawbridge")
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"].keys() == {"summary", "description"}
    assert not rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["description"].endswith(".")


def test_each_alert_fires_in_a_test_case_that_was_quiet_before() -> None:
    """Two moments of one case show how long an alert waits."""
    cases = [test["alert_rule_test"] for path in CASES for test in yaml.safe_load(path.read_text())["tests"]]
    fires = [(moment["alertname"], bool(moment.get("exp_alerts"))) for case in cases for moment in case]
    pairs = [pair for case in cases for pair in itertools.pairwise(case)]
    waited = {
        one["alertname"] for one, other in pairs if not one.get("exp_alerts") and other.get("exp_alerts")
    }

    assert {*fires} == {(name, fired) for name in alerts() for fired in (True, False)}
    assert {name for name, rule in alerts().items() if "for" in rule} <= waited


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    """A section on the page of its feature, which begins with the severity."""
    shared = {"leader": "platform", "cloud": "platform"}
    expected = {
        (shared.get(group, group), rule["alert"], rule["labels"]["severity"])
        for group, rules in groups().items()
        for rule in rules
    }

    assert {
        (page.stem, name, severity)
        for page in RUNBOOKS.glob("*.md")
        for name, severity in re.findall(
            r"^##+ (Drawbridge\w+)\n\n\*\*(\w+)\*\* · ", page.read_text(), re.MULTILINE
        )
    } == expected


@pytest.mark.parametrize("name", [path.stem for path in DASHBOARDS])
def test_every_panel_has_its_texts_its_unit_and_its_place(name: str) -> None:
    found = dashboard(name)
    for panel in found["panels"]:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
    places = [panel["gridPos"] for panel in found["panels"]]
    cells = [
        cell
        for place in places
        for cell in itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        )
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in found["panels"]}) == len(places)
    assert found["uid"] == f"drawbridge-{name}"


def test_each_feature_has_a_dashboard() -> None:
    assert {path.stem for path in DASHBOARDS} == groups().keys() - {"leader", "cloud"}


def test_every_metric_of_ours_is_on_a_dashboard() -> None:
    shown = set().union(
        *(monitoring.series(text) for name, text in expressions().items() if name not in alerts())
    )
    bare = {re.sub("_(bucket|count|sum)$", "", name) for name in shown} | shown

    assert facts.metrics() - bare == set()
