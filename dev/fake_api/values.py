"""JSON values."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def copied(value: T) -> T:
    """A copy that shares nothing that can be changed: ``copy.deepcopy`` for JSON, in a fifth of its time."""
    if isinstance(value, dict):
        return {  # type: ignore[return-value]
            key: copied(each) if isinstance(each, (dict, list)) else each for key, each in value.items()
        }
    if isinstance(value, list):
        return [copied(each) if isinstance(each, (dict, list)) else each for each in value]  # type: ignore[return-value]
    return value
