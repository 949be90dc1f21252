"""What the code says of itself: its metrics, the reasons of its Events, its settings, and the chart's values."""

import ast
import functools
import re
from collections.abc import Iterator
from typing import Any, get_args

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from settings import Settings
from tests.pages import ROOT

PRODUCT = [
    "settings",
    "telemetry",
    "kube",
    "certs",
    "calico",
    "cloud",
    "webhook",
    "healthchecker",
    "controllers",
]


@functools.cache
def nodes() -> list[ast.AST]:
    trees = [
        ast.parse(path.read_text()) for package in PRODUCT for path in sorted((ROOT / package).rglob("*.py"))
    ]
    return [node for tree in trees for node in ast.walk(tree)]


def calls() -> list[ast.Call]:
    return [node for node in nodes() if isinstance(node, ast.Call)]


def called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def text_of(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def metrics() -> set[str]:
    """As a scraper sees them: a counter always ends in _total."""
    found = set()
    for call in calls():
        if (
            called(call) in ("Counter", "Gauge", "Histogram")
            and call.args
            and (name := text_of(call.args[0]))
        ):
            found.add(f"{name.removesuffix('_total')}_total" if called(call) == "Counter" else name)
    return found


def series() -> set[str]:
    histograms = {text_of(call.args[0]) for call in calls() if called(call) == "Histogram"}
    parts = {f"{name}_{part}" for name in histograms for part in ("bucket", "count", "sum")}
    return metrics() | parts


TELLING = {"event": 1, "_event": 1, "once": 1, "Refused": 1, "Verdict": 3, "Note": 0, "refusal": 0}
"""Which argument is the reason of an Event: of what writes one, and of what makes a note for one."""


def reasons() -> set[str]:
    """Those of TELLING, and of the pairs that say what is bad of a pod, and why."""
    said = [
        call.args[where]
        for call in calls()
        if (where := TELLING.get(called(call), len(call.args))) < len(call.args)
    ]
    said += [arg for call in calls() if called(call) == "_warn" for arg in call.args[:2]]
    pairs = [node.elts[0] for node in nodes() if isinstance(node, ast.Tuple) and len(node.elts) == 2]
    said += [each for each in pairs if re.match("Bad[A-Z]", text_of(each))]
    return {reason for each in [*said, *news()] for reason in texts_of(each) if reason.isalpha()}


def news() -> Iterator[ast.expr]:
    """The reasons of what is yielded as news: a reason, a message and a type."""
    for function in nodes():
        match function:
            case ast.FunctionDef(returns=ast.Subscript(slice=ast.Name(id="News"))):
                yielded = [node.value for node in ast.walk(function) if isinstance(node, ast.Yield)]
                yield from (each.elts[0] for each in yielded if isinstance(each, ast.Tuple))


def verdicts() -> set[str]:
    """The reasons of conditions: of what is returned as whether it is so, why in a word, and why in a sentence."""
    found = set()
    for function in nodes():
        match function:
            case ast.FunctionDef(returns=ast.Name(id="Verdict")):
                returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
                for each in returned:
                    found |= texts_of(each.elts[1]) if isinstance(each, ast.Tuple) else set()
    return found


def texts_of(node: ast.expr) -> set[str]:
    """What *node* may come to, where it is a text, a choice between two, or looked up in a table."""
    match node:
        case ast.IfExp(body=one, orelse=other):
            return texts_of(one) | texts_of(other)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="get"), args=[_, otherwise]):
            return texts_of(otherwise) | texts_in(name)
        case ast.Subscript(value=ast.Name(id=name)):
            return texts_in(name)
        case _:
            return {text_of(node)}


def texts_in(name: str) -> set[str]:
    """All that the table, a module's constant, with this name has for values."""
    tables = [
        node.value
        for node in nodes()
        if isinstance(node, ast.Assign)
        if [each.id for each in node.targets if isinstance(each, ast.Name)] == [name]
    ]
    return {text for table in tables for value in values_of(table) for text in texts_of(value)}


def values_of(table: ast.expr) -> list[ast.expr]:
    """Of one that is written out, and of one in which all names stand for themselves."""
    match table:
        case ast.Dict(values=values):
            return values
        case ast.DictComp(
            key=ast.Name(id=key),
            value=ast.Name(id=value),
            generators=[ast.comprehension(iter=ast.Tuple(elts=names))],
        ) if key == value:
            return names
        case _:
            return []


def leaves(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """The settings, as written in the file; `name[].part` is a part of each thing in a list."""
    for name, field in model.model_fields.items():
        where = f"{path}{field.alias or name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, f"{where}.")
        else:
            yield where, field
            for part in get_args(field.annotation):
                if isinstance(part, type) and issubclass(part, BaseModel):
                    yield from leaves(part, f"{where}[].")


SETTINGS = {name: field for name, field in leaves(Settings) if "[]." not in name}
PARTS = [name for name, _ in leaves(Settings) if "[]." in name]


def paths(values: dict[str, Any], path: str = "") -> Iterator[str]:
    """Of all values, and of what they stand in."""
    for key, part in values.items():
        yield f"{path}{key}"
        if isinstance(part, dict):
            yield from paths(part, f"{path}{key}.")


@functools.cache
def chart_values() -> set[str]:
    return {*paths(yaml.safe_load((ROOT / "charts" / "drawbridge" / "values.yaml").read_text()))}


def takes(name: str) -> bool:
    """Whether the chart has a value of this name, or one above it into which anything may be written."""
    known = chart_values()
    above = name.rpartition(".")[0]
    return name in known or (
        bool(above) and takes(above) and not any(each.startswith(f"{above}.") for each in known)
    )
