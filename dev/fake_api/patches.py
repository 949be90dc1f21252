"""The patches that the API server is sent: merge patches by RFC 7386, JSON patches by RFC 6902, and of strategic merge
patches what conditions need."""

from __future__ import annotations

from typing import Any

import jsonpatch
import jsonpointer

from dev.fake_api.values import copied

MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Unpatchable(Exception):
    """The patch does not apply to the object."""


def patched(held: Any, patch: Any, content_type: str) -> Any:
    """*held* stays as it is; KeyError for another type of patch."""
    return {MERGE: merged, JSON_PATCH: _operated, STRATEGIC: strategic}[content_type](held, patch)


def merged(held: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    base = held if isinstance(held, dict) else {}
    values = base | {name: merged(base.get(name), each) for name, each in change.items()}
    return {name: each for name, each in values.items() if each is not None}


def strategic(held: Any, change: Any) -> Any:
    """As a merge patch, but for conditions, which are merged by their types; ``$patch: delete`` takes one away."""
    if not isinstance(change, dict):
        return change
    base = held if isinstance(held, dict) else {}
    values = dict(base)
    for name, each in change.items():
        merge = _conditions if name == "conditions" else strategic
        values[name] = merge(base.get(name), each)
    return {name: each for name, each in values.items() if each is not None}


def _conditions(held: Any, changes: Any) -> Any:
    found = {each["type"]: each for each in held or ()}
    for each in changes:
        if each.get("$patch") == "delete":
            found.pop(each["type"], None)
        else:
            found[each["type"]] = merged(found.get(each["type"]), each)
    return list(found.values())


def _operated(held: Any, operations: Any) -> Any:
    try:
        return jsonpatch.apply_patch(copied(held), operations)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise Unpatchable(str(error)) from error
