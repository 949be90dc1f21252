"""The difference of two objects as a JSON patch."""

from collections.abc import Mapping
from typing import Any

import jsonpatch

Operation = Mapping[str, Any]
Object = Mapping[str, Any]


def patch(before: Object, after: Object) -> tuple[Operation, ...]:
    """RFC 6902 operations that turn *before* into *after*."""
    return tuple(jsonpatch.make_patch(*_without_shared(before, after)))


def _without_shared(before: Object, after: Object) -> tuple[Object, Object]:
    """Both, without values that are one object: comparing them would take most of an admission's time."""
    old, new = dict(before), dict(after)
    for name in before.keys() & after.keys():
        if old[name] is new[name]:
            del old[name], new[name]
        elif isinstance(old[name], dict) and isinstance(new[name], dict):
            old[name], new[name] = _without_shared(old[name], new[name])
    return old, new
