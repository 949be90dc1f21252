"""Make what the chart checks of its values: most become settings, and their rules are those of the settings' models."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import yaml
from pydantic import TypeAdapter

from cli import value_names
from dev.lab import chart, values_comments
from dev.lab.repository import ROOT
from settings import Settings, values
from settings.values import Order, ValuesOfOperators

SCHEMA = chart.CHART / "values.schema.json"
CHECKS = chart.CHART / "templates" / "_settings.tpl"
DEFAULTS = yaml.safe_load((chart.CHART / "values.yaml").read_text())
SOURCE = yaml.safe_load((ROOT / "dev" / "lab" / "values_schema.yaml").read_text())
OPTIONAL = tuple(SOURCE["optional"])
REFUSED: dict[str, str] = SOURCE["refused"]
"""Values of the originals' charts that have no effect here, each with what to do instead."""
SHARED = {
    "address": values.Address,
    "annotations": dict[values.LabelName, str],
    "certificates": values.CACertificates,
    "count": values.Count,
    "duration": values.Duration,
    "image": values.Image,
    "labels": values.Labels,
    "name": values.Name,
    "percent": values.Percent,
    "period": values.Period,
    "port": values.Port,
    "region": values.Region,
    "resources": values.Resources,
}
HEAD = (
    "Made of the settings' models by `make manifests`: change those, or dev/lab/values_schema.yaml, instead."
)
Schema = dict[str, Any]


def _models(model: type[values.Model], path: str = "") -> Iterator[tuple[str, type[values.Model]]]:
    """All sections below *model*; that of a list's items has the path of the list."""
    yield path, model
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, values.Model):
                yield from _models(kind, f"{path}.{field.alias or name}".lstrip("."))


SETTINGS = {path: setting for path, setting in value_names.SETTINGS.items() if path not in SOURCE["values"]}
"""Which setting each value becomes."""


def schema() -> str:
    definitions = {name: _cleaned(TypeAdapter(kind).json_schema()) for name, kind in SHARED.items()}
    settings = _cleaned(Settings.model_json_schema(by_alias=True))
    root: Schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": HEAD,
        "title": "Values of the Drawbridge chart",
        **_object(),
    }
    every = {path: {"setting": setting} for path, setting in SETTINGS.items()} | SOURCE["values"]
    for path, given in every.items():
        found = _shared(_of_value(given, settings), definitions)
        needed = path in SETTINGS or path in SOURCE["needed"] or bool(default(path))
        _place(root, path, found, required=needed and not _may_be_null(path, found))
    for path, instead in REFUSED.items():
        _refuse(root, path.split("."), {"description": f"Refused: {instead}"})
    for path, comment in values_comments.read((chart.CHART / "values.yaml").read_text()).items():
        _describe(root, path.split("."), comment)
    return json.dumps(root | {"$defs": definitions | SOURCE["definitions"]}, indent=2) + "\n"


def checks() -> str:
    """A template that calls the hand-written check of each relation, with the names of the values."""
    lines = [
        f'{{{{- include "{name}" (list . {" ".join(map(json.dumps, words))}) }}}}\n'
        for name, *words in _calls()
    ]
    refused = " ".join(json.dumps(word) for words in REFUSED.items() for word in words)
    return (
        f'{{{{/* {HEAD} */}}}}\n{{{{- define "drawbridge.originals" -}}}}\n{_originals()}\n{{{{- end }}}}\n\n'
        f'{{{{- define "drawbridge.validateSettings" -}}}}\n{"".join(lines)}{{{{- end }}}}\n\n'
        f'{{{{- define "drawbridge.validateRefused" -}}}}\n{{{{- include "drawbridge.refuse" (list . {refused}) }}}}\n'
        "{{- end }}\n"
    )


def _originals() -> str:
    """Our name of a value, that of an original, and our default."""
    return json.dumps([[ours, theirs, default(ours)] for theirs, ours in value_names.ORIGINALS.items()])


def default(path: str) -> Any:
    """Of the value at *path*; None where values.yaml does not name it."""
    return functools.reduce(lambda found, part: found.get(part), path.split("."), DEFAULTS)


def _calls() -> Iterator[tuple[str, ...]]:
    names = {setting: value for value, setting in SETTINGS.items()}
    for path, model in _models(Settings):
        for relation in model.relations:
            match relation:
                case Order():
                    fields = [names.get(f"{path}.{name}", "") for name in relation.names]
                    if all(fields):  # else the chart computes some, or leaves them at their defaults
                        yield "drawbridge.inOrder", relation.rule, *fields
                case ValuesOfOperators():
                    yield "drawbridge.valuesOfOperators", names[path], *relation.operators
                case _:
                    raise TypeError(f"the chart has no check of {relation}")


def _of_value(given: Schema, found: Schema) -> Schema:
    if "setting" in given:
        for part in given["setting"].split("."):
            found = found["properties"][part]
        return found | {key: part for key, part in given.items() if key != "setting"}
    if "original" in given:
        others = {key: part for key, part in given.items() if key != "original"}
        schema = _of_value({"setting": given["original"]}, found) | others
        return {"anyOf": [{"enum": ["", None]}, *schema.get("anyOf", [schema])]}
    return given


def _cleaned(node: Any, definitions: Mapping[str, Schema] | None = None) -> Any:
    """Without references, and without what documents Python; objects have only the properties that are named."""
    if isinstance(node, list):
        return [_cleaned(part, definitions) for part in node]
    if not isinstance(node, dict):
        return node
    known = node.get("$defs", {}) if definitions is None else definitions
    if "$ref" in node:
        return _cleaned(known[node["$ref"].rpartition("/")[2]], known)
    kept = {
        key: part for key, part in node.items() if key not in ("$defs", "default", "description", "title")
    }
    cleaned = {
        key: {name: _cleaned(each, known) for name, each in part.items()}
        if key in ("properties", "patternProperties")
        else _cleaned(part, known)
        for key, part in kept.items()
    }
    return cleaned | ({"additionalProperties": False} if "patternProperties" in cleaned else {})


def _shared(node: Any, definitions: Mapping[str, Schema]) -> Any:
    """With references to the *definitions* that are the same."""
    for name, definition in definitions.items():
        if node == definition:
            return {"$ref": f"#/$defs/{name}"}
    if isinstance(node, dict):
        return {key: _shared(part, definitions) for key, part in node.items()}
    return [_shared(part, definitions) for part in node] if isinstance(node, list) else node


def _may_be_null(path: str, found: Schema) -> bool:
    said = {"type": "null"} in found.get("anyOf", ()) or "null" in found.get("type", ())
    return said or path.startswith(OPTIONAL)


def _place(section: Schema, path: str, found: Schema, *, required: bool) -> None:
    """Templates look into the sections that it is in, which are required as well."""
    *parents, name = path.split(".")
    for at, parent in enumerate(parents, 1):
        _require(section, parent, required or not ".".join(parents[:at]).startswith(OPTIONAL))
        section = section["properties"].setdefault(parent, _object())
    _require(section, name, required)
    section["properties"][name] = found


def _require(section: Schema, name: str, required: bool) -> None:
    if required:
        section["required"] = list(dict.fromkeys([*section.get("required", []), name]))


def _refuse(section: Schema, path: list[str], found: Schema) -> None:
    """No property, as it is no value; the template that refuses it knows the way out."""
    *parents, name = path
    for parent in parents:
        section = section["properties"][parent]
    section.setdefault("patternProperties", {})[f"^{name}$"] = found


def _object() -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _describe(section: Schema, path: list[str], comment: str) -> None:
    """Add *comment* to the node at *path*; parts of a value, which the schema does not name, have none."""
    name, *rest = path
    node = section.get("properties", {}).get(name)
    if node is not None and rest:
        _describe(node, rest, comment)
    elif node is not None:
        section["properties"][name] = {"description": comment} | node
