"""The difference between two objects as a JSON patch that applies to nothing but the first of them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jsonpatch
from jsonpointer import JsonPointer

Operation = Mapping[str, Any]


def patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Operation, ...]:
    """RFC 6902 operations that turn *before* into *after*.

    A list that is edited by index is tested first: an index means something in that very list only.
    """
    operations = jsonpatch.make_patch(before, after).patch
    return (*_tests(before, operations), *operations)


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
