"""What alerts and dashboards ask Prometheus for."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests import facts
from tests.pages import ROOT

FILES = ROOT / "charts" / "drawbridge" / "files"
DASHBOARDS = sorted((FILES / "dashboards").glob("*.json"))
CASES = sorted((ROOT / "tests" / "data" / "alerts").glob("*.yaml"))

OF_OTHERS = {
    "up": set(),
    "process_cpu_seconds_total": set(),
    "process_resident_memory_bytes": set(),
    "apiserver_admission_webhook_fail_open_count": {"name", "type"},
    "apiserver_admission_webhook_rejection_count": {"name", "type", "operation", "error_type"},
}
"""Series that our code does not name, with their labels: Prometheus', the client library's, the API server's."""
OF_TARGETS = {"job", "namespace", "service", "pod", "container", "endpoint", "instance"}
"""The labels that the operator gives to everything that is scraped from a pod."""
WORDS = {
    *("absent", "and", "by", "changes", "count", "count_values", "group", "group_left", "histogram_quantile"),
    *(
        "increase",
        "label_replace",
        "label_values",
        "max",
        "min",
        "min_over_time",
        "on",
        "or",
        "predict_linear",
        "rate",
    ),
    *("sum", "time", "topk", "unless", "vector"),
}
"""Of the query language."""
MATCHER = re.compile(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"')


def groups() -> dict[str, list[dict[str, Any]]]:
    """The rules as they stand, with names where the chart puts values."""
    return {
        group["name"].removeprefix("drawbridge-"): group["rules"]
        for group in yaml.load((FILES / "alerts.yaml").read_text(), yaml.CSafeLoader)["groups"]
    }


@functools.cache
def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rules in groups().values() for rule in rules}


def dashboard(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FILES / "dashboards" / f"{name}.json").read_text())
    return found


@functools.cache
def expressions() -> dict[str, str]:
    """Everything that is asked, by who asks it."""
    asked = {name: rule["expr"] for name, rule in alerts().items()}
    for path in DASHBOARDS:
        asked |= {f"{path.stem} {where}": text for where, text in _of_dashboard(dashboard(path.stem))}
    return asked


def _of_dashboard(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for panel in content["panels"]:
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for variable in content["templating"]["list"]:
        if variable["type"] == "query":
            yield f"${variable['name']}", re.sub(r", \w+\)$", ")", variable["query"]["query"])


def series(expression: str) -> set[str]:
    """All names in it that are not words of the language or labels."""
    text = re.sub(r'@\w+@|"[^"]*"|\{[^}]*\}|\[[^]]*\]|\b(?:by|on|group_left) \([^)]*\)', " ", expression)
    return set(re.findall(r"[a-zA-Z_]\w*", text)) - WORDS


def matchers(expression: str) -> set[tuple[str, str, str]]:
    """Series, label and value of each condition in it."""
    return {
        (name, label, value)
        for name, inside in re.findall(r"(\w+)\{((?:[^}\"]|\"[^\"]*\")*)\}", expression)
        for label, value in MATCHER.findall(inside)
    }


def grouped_by(expression: str) -> set[str]:
    lists = re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
    return {label.strip() for each in lists for label in each.split(",")}


@functools.cache
def labels() -> dict[str, set[str]]:
    """Of each of our metrics, by its series."""
    found = dict(OF_OTHERS)
    for call in facts.calls():
        name = facts.text_of(call.args[0]) if call.args else ""
        if facts.called(call) in ("Counter", "Gauge", "Histogram") and name:
            own = {facts.text_of(each) for part in call.args[2:3] for each in _elements(part)}
            bare = name.removesuffix("_total")
            found |= dict.fromkeys((name, f"{bare}_total", f"{bare}_count", f"{bare}_sum"), own)
            found[f"{bare}_bucket"] = own | {"le"}
    return found


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.List) else []
