"""Repeat a call only when that cannot do anything twice, later each time, and not in step with others."""

from __future__ import annotations

from cloud.errors import (
    CloudError,
    InProgress,
    NotPermitted,
    QuotaExceeded,
    Rejected,
    ServerFault,
    TagMissing,
    Throttled,
    Unavailable,
    Unreachable,
)

FIRST, LONGEST = 0.25, 4.0
"""Seconds; limits are counted by the second, so that the third delay is in the next one for certain."""

_NOT_CARRIED_OUT = (Throttled, Unreachable, InProgress)
_OUTCOME_UNKNOWN = (Unavailable, ServerFault)
_TURNED_AWAY = (Throttled, Unreachable, NotPermitted, QuotaExceeded, TagMissing, Rejected)
"""Refusals of a call that say nothing of an earlier one like it."""


def delay(error: CloudError, attempt: int, *, repeatable: bool, chance: float) -> float | None:
    """Seconds to wait after the *attempt*-th failure in a row, or None when the call is not to be repeated.

    *chance*, from 0 up to 1, spreads callers that failed together over the second half of the delay.
    """
    passing = isinstance(error, _NOT_CARRIED_OUT) or (repeatable and isinstance(error, _OUTCOME_UNKNOWN))
    if not passing:
        return None
    whole = min(LONGEST, FIRST * 2.0 ** min(attempt - 1, 10))
    return whole * (1 + chance) / 2


def left_open(before: CloudError | None, error: CloudError) -> CloudError | None:
    """The error that leaves open whether a write was carried out, after *error*, when it was *before* until then."""
    if isinstance(error, _TURNED_AWAY):
        return before
    return error if isinstance(error, _OUTCOME_UNKNOWN) else None
