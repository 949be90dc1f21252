"""Record each call with its outcome, and count them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from dev.lab.cloud.values import Call

KEPT = 200_000


def new_log() -> deque[Call]:
    return deque(maxlen=KEPT)


def counted(calls: Iterable[Call]) -> dict[str, dict[str, int]]:
    """How many, by action and outcome."""
    table: dict[str, dict[str, int]] = {}
    for call in calls:
        outcomes = table.setdefault(call.action, {})
        outcomes[call.outcome] = outcomes.get(call.outcome, 0) + 1
    return table
