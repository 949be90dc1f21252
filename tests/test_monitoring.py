"""Alerts and dashboards: they query existing series, each alert fires when it should, and has a runbook."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
import yaml

from tests import facts, monitoring
from tests.monitoring import CASES, DASHBOARDS, OF_OTHERS, OF_TARGETS, alerts, dashboard, expressions, groups
from tests.pages import ROOT, table

RUNBOOKS = ROOT / "docs" / "how-to" / "runbooks"
ELSEWHERE = {"TOTAL_EIP_QUOTA", "DAILY_EIP_APPLY", "no_error", ".+[.]drawbridge[.]io", "@job@", "@namespace@"}
"""Values of labels that the code does not name: the cloud's, the API server's, the chart's."""


KNOWN = facts.series() | OF_OTHERS.keys()


@pytest.mark.parametrize("expression", expressions().values(), ids=expressions().keys())
def test_only_series_that_there_are_are_asked_for(expression: str) -> None:
    asked = monitoring.series(expression)

    assert asked
    assert asked <= KNOWN


@pytest.mark.parametrize("expression", expressions().values(), ids=expressions().keys())
def test_only_labels_that_the_series_have_are_asked_for(expression: str) -> None:
    known = monitoring.labels()

    for name, label, _ in monitoring.matchers(expression):
        assert label in known[name] | OF_TARGETS
    everything = set().union(*(known[name] for name in monitoring.series(expression)))
    assert monitoring.grouped_by(expression) <= everything | OF_TARGETS | {"webhook"}


def words(node: ast.AST) -> str | None:
    """What may become the value of a label: a text, a keyword, or the name of a class of errors."""
    match node:
        case ast.Constant(value=str(text)) | ast.keyword(arg=str(text)):
            return text
        case ast.ClassDef(name=name):
            return re.sub("(?<!^)(?=[A-Z])", "_", name).lower()
    return None


WORDS = {*map(words, facts.nodes())}


@pytest.mark.parametrize("expression", expressions().values(), ids=expressions().keys())
def test_only_values_that_the_code_has_are_asked_for(expression: str) -> None:
    asked = {
        each
        for _, _, value in monitoring.matchers(expression)
        for each in ([value] if value in ELSEWHERE else value.split("|"))
        if not each.startswith("$")
    }

    assert asked - ELSEWHERE <= WORDS


def test_the_words_of_the_language_that_are_known_are_used() -> None:
    """Else one of them might hide a series."""
    text = " ".join(expressions().values())

    assert [word for word in monitoring.WORDS - {"label_values"} if not re.search(rf"\b{word}\b", text)] == []


@pytest.mark.parametrize("rule", alerts().values(), ids=alerts().keys())
def test_an_alert_says_how_bad_it_is_and_what_it_is_about(rule: dict[str, Any]) -> None:
    assert rule["alert"].startswith("Drawbridge")
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"].keys() == {"summary", "description"}
    assert not rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["description"].endswith(".")


def cases() -> dict[str, list[bool]]:
    """For each alert, the moments at which its tests expect it to fire or not."""
    found: dict[str, list[bool]] = {}
    for path in CASES:
        for test in yaml.safe_load(path.read_text())["tests"]:
            for moment in test["alert_rule_test"]:
                found.setdefault(moment["alertname"], []).append(bool(moment.get("exp_alerts")))
    return found


def test_each_alert_is_made_to_fire_and_kept_from_it() -> None:
    assert {name: set(fires) for name, fires in cases().items()} == {name: {True, False} for name in alerts()}


def test_each_alert_that_waits_is_looked_at_before_it_has_waited_long_enough() -> None:
    """The very case that makes it fire is quiet before."""
    waiting = {name for name, rule in alerts().items() if "for" in rule}
    looked_at = {
        moment["alertname"]
        for path in CASES
        for test in yaml.safe_load(path.read_text())["tests"]
        for moment, later in zip(test["alert_rule_test"], test["alert_rule_test"][1:], strict=False)
        if not moment.get("exp_alerts") and later.get("exp_alerts")
    }

    assert waiting <= looked_at


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    pages = {page.stem: page.read_text() for page in RUNBOOKS.glob("Drawbridge*.md")}

    assert pages.keys() == alerts().keys()
    for name, text in pages.items():
        headings = re.findall("^#+ (.+)$", text, re.MULTILINE)
        assert headings == [name, "Impact", "Diagnosis", "Mitigation"]
        assert f"Severity: {alerts()[name]['labels']['severity']}. " in text


def test_the_list_of_runbooks_has_every_alert() -> None:
    rows = {
        name: row[1]
        for row in table(RUNBOOKS / "README.md", "Runbooks")
        for name in re.findall("`(.+?)`", row[0])
    }

    assert rows == {name: rule["labels"]["severity"] for name, rule in alerts().items()}


@pytest.mark.parametrize("name", [path.stem for path in DASHBOARDS])
def test_every_panel_says_what_it_shows_and_in_which_unit(name: str) -> None:
    for panel in dashboard(name)["panels"]:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


@pytest.mark.parametrize("name", [path.stem for path in DASHBOARDS])
def test_no_panel_overlaps_another(name: str) -> None:
    panels = dashboard(name)["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_every_dashboard_has_its_own_identity() -> None:
    found = [dashboard(path.stem) for path in DASHBOARDS]

    assert [each["uid"] for each in found] == [f"drawbridge-{path.stem}" for path in DASHBOARDS]
    assert len({each["title"] for each in found}) == len(found)
    assert {path.stem for path in DASHBOARDS} == groups().keys() - {"leader", "cloud"}


def test_every_metric_of_ours_is_on_a_dashboard() -> None:
    shown = set().union(
        *(monitoring.series(text) for name, text in expressions().items() if name not in alerts())
    )
    bare = {re.sub("_(bucket|count|sum)$", "", name) for name in shown} | shown

    assert facts.metrics() - bare == set()
