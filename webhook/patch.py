"""The difference of two objects as a JSON patch that applies only to the first of them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jsonpatch
from jsonpointer import JsonPointer

Operation = Mapping[str, Any]


def patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Operation, ...]:
    """RFC 6902 operations that turn *before* into *after*.

    A list that is edited by index is tested first: an index is valid in that list only.
    """
    operations = jsonpatch.make_patch(*_differing(before, after)).patch
    return (*_tests(before, operations), *operations)


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both without the parts that are identical objects: comparing those took most of an admission's time."""
    old = {key: value for key, value in before.items() if key not in after or after[key] is not value}
    new = {key: value for key, value in after.items() if key in old or key not in before}
    for key in old.keys() & new.keys():
        if isinstance(old[key], dict) and isinstance(new[key], dict):
            old[key], new[key] = _differing(old[key], new[key])
    return old, new


def _tests(before: Mapping[str, Any], operations: Iterable[Operation]) -> Iterator[Operation]:
    edited = {path for each in operations for path in _edited_lists(before, each)}
    for path in sorted(edited):
        yield {"op": "test", "path": path, "value": JsonPointer(path).resolve(before)}


def _edited_lists(before: Mapping[str, Any], operation: Operation) -> Iterator[str]:
    """The outermost list of *before* on the way to each place that *operation* names."""
    for pointer in (operation["path"], operation.get("from")):
        if pointer is not None and (path := _outermost_list(before, JsonPointer(pointer).parts)):
            yield path


def _outermost_list(before: Any, parts: list[str]) -> str:
    found = before
    for depth, part in enumerate(parts):
        if isinstance(found, list):
            return str(JsonPointer.from_parts(parts[:depth]).path)
        found = found.get(part) if isinstance(found, dict) else None
    return ""
