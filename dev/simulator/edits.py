"""Edits of a spec, generated from its schema: any field, with any value that the schema allows, or taken out.

After Acto (SOSP '23, https://github.com/xlab-uiuc/acto). A new field is edited from the day on which it is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from dev.fake_api.kinds import definition
from dev.simulator.objects import CHECK_PORT, INGRESS_LABEL

Raw = dict[str, Any]
SPEC: Raw = definition("charts/drawbridge/files/ingressdaemonsets.yaml", "spec")
LEFT_OUT = frozenset({"selector", "template", "loadBalancers", "query", "image", "serviceAccountName"})
"""A selector cannot change; templates have an operation of their own; the others name what is not here."""
NUMBERS = (0, 1, 2, 5, 20, 60, 300)
WORDS: dict[str, tuple[Any, ...]] = {
    "healthCheckNodePorts": ([CHECK_PORT], [CHECK_PORT, CHECK_PORT + 1]),
    "nodeSelector": ({}, {INGRESS_LABEL: "true"}, {"kubernetes.io/os": "linux"}),
    "key": ("node-detacher.variant.run/detached", "example.com/detached"),
    "byLabel": ("kubernetes.io/hostname", INGRESS_LABEL),
    "start": ("00:00", "03:00", "12:00"),
    "timeZone": ("UTC", "Asia/Singapore"),
    "podsPerNode": (1, 2, 3, 20),
    "ports": ([80],),
    "path": ("/metrics",),
    "metric": ("connections",),
}
"""For fields whose strings have a form, or name something that is here."""


def edited(spec: Raw, dice: Random) -> tuple[Raw, Raw]:
    """A merge patch, and the one that takes it back."""
    path, schema = _drawn(dice)
    value = None if dice.random() < 0.15 else _value(path[-1], schema, dice)
    return _patch(path, value), _patch(path, _at(spec, path))


def _patch(path: Sequence[str], value: Any) -> Raw:
    head, *rest = path
    return {head: _patch(rest, value) if rest else value}


def _drawn(dice: Random) -> tuple[list[str], Raw]:
    """A field, at any depth."""
    path: list[str] = []
    schema = SPEC
    while not path or ("properties" in schema and dice.random() < 0.7):
        names = [each for each in schema["properties"] if each not in LEFT_OUT]
        if not names:
            break
        path.append(dice.choice(names))
        schema = schema["properties"][path[-1]]
    return path, schema


def _value(name: str, schema: Raw, dice: Random) -> Any:
    if name in WORDS and "properties" not in schema:
        return dice.choice(WORDS[name])
    if "enum" in schema:
        return dice.choice(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return dice.choice((0, 1, 2, 3, "25%", "50%"))
    if "properties" in schema:
        needed = schema.get("required", ())
        chosen = [each for each in schema["properties"] if each in needed or dice.random() < 0.4]
        below = {each: schema["properties"][each] for each in chosen if each not in LEFT_OUT}
        return {each: _value(each, of, dice) for each, of in below.items()}
    return _plain(name, schema, dice)


def _plain(name: str, schema: Raw, dice: Random) -> Any:
    match schema.get("type"):
        case "boolean":
            return dice.random() < 0.5
        case "integer" | "number":
            least, most = schema.get("minimum", 0), schema.get("maximum", NUMBERS[-1])
            return dice.choice([each for each in NUMBERS if least <= each <= most] or [least])
        case "array":
            return [_value(name, schema["items"], dice)]
        case "object":
            return {}
    return "x"


def _at(spec: Any, path: list[str]) -> Any:
    for name in path:
        spec = (spec or {}).get(name) if isinstance(spec, dict) else None
    return spec
