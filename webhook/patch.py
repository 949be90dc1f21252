"""The difference of two objects as a JSON patch that applies only to the first of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

Operation = Mapping[str, Any]


def patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Operation, ...]:
    """RFC 6902 operations that turn *before* into *after*.

    A list that is edited is tested first: an index is valid in that list only.
    """
    return tuple(_of_objects("", before, after))


def _of_objects(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Operation]:
    for name, old in before.items():
        at = f"{path}/{_escaped(name)}"
        if name in after:
            yield from _of_values(at, old, after[name])
        else:
            yield {"op": "remove", "path": at}
    for name, new in after.items():
        if name not in before:
            yield {"op": "add", "path": f"{path}/{_escaped(name)}", "value": new}


def _of_values(path: str, old: Any, new: Any) -> Iterator[Operation]:
    # What is one object needs no comparison, which would take most of an admission's time.
    if old is new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _of_objects(path, old, new)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _of_lists(path, old, new)
    elif not _is_same(old, new):
        yield {"op": "replace", "path": path, "value": new}


def _of_lists(path: str, old: Sequence[Any], new: Sequence[Any]) -> Iterator[Operation]:
    if _is_same(old, new):
        return
    yield {"op": "test", "path": path, "value": old}
    if _is_same(old, new[: len(old)]):
        for index in range(len(old), len(new)):
            yield {"op": "add", "path": f"{path}/{index}", "value": new[index]}
    else:
        yield {"op": "replace", "path": path, "value": new}


def _is_same(old: Any, new: Any) -> bool:
    """In JSON: to Python, True is 1."""
    return msgspec.json.encode(old) == msgspec.json.encode(new)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
