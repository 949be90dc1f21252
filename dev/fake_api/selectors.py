"""Label and field selectors, as the API server reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SET = re.compile(r"\s*([^\s!=(),]+)\s+(in|notin)\s*\(([^)]*)\)\s*")
EQUAL = re.compile(r"\s*([^\s!=(),]+)\s*(==|!=|=)\s*([^\s,]*)\s*")
EXISTS = re.compile(r"\s*(!?)\s*([^\s!=(),]+)\s*")


class Unselectable(Exception):
    """The selector cannot be read, or the kind has no such field."""


def matches_labels(selector: str, labels: Mapping[str, str]) -> bool:
    return all(_matches(part, labels) for part in _parts(selector))


def matches_fields(selector: str, raw: Mapping[str, Any], known: frozenset[str]) -> bool:
    for part in filter(None, selector.split(",")):
        if (found := EQUAL.fullmatch(part)) is None:
            raise Unselectable(f"invalid selector: {part!r}")
        if found[1] not in known:
            raise Unselectable(f"field label not supported: {found[1]}")
        if (_field(raw, found[1]) == found[3]) == (found[2] == "!="):
            return False
    return True


def _parts(selector: str) -> list[str]:
    """Split at the commas that stand in no parentheses."""
    return [part for part in re.split(r",(?![^(]*\))", selector) if part.strip()]


def _matches(part: str, labels: Mapping[str, str]) -> bool:
    if found := SET.fullmatch(part):
        values = {value.strip() for value in found[3].split(",")}
        return (labels.get(found[1]) in values) == (found[2] == "in")
    if found := EQUAL.fullmatch(part):
        return (labels.get(found[1]) == found[3]) == (found[2] != "!=")
    if found := EXISTS.fullmatch(part):
        return (found[2] in labels) == (not found[1])
    raise Unselectable(f"unable to parse requirement: {part!r}")


def _field(raw: Mapping[str, Any], path: str) -> str:
    value: Any = raw
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return str(value).lower() if isinstance(value, bool) else str(value or "")
