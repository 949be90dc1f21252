"""Cut a page out of the rows found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from dev.lab.cloud.envelope import Fault

Row = TypeVar("Row")


def page(rows: Sequence[Row], offset: int, limit: int, *, code: str, most: int = 100) -> Sequence[Row]:
    """Raises Fault with *code* when there is no such page."""
    if not 1 <= limit <= most:
        raise Fault(code, f"The Limit is {limit}; it must be from 1 to {most}.")
    if offset < 0:
        raise Fault(code, f"The Offset is {offset}; it must not be negative.")
    return rows[offset : offset + limit]


def aligned(rows: Sequence[Row], offset: int, limit: int, *, most: int) -> Sequence[Row]:
    """As the Tag API pages: the offset is a multiple of the limit."""
    found = page(rows, offset, limit, code="InvalidParameterValue.OffsetInvalid", most=most)
    if offset % limit:
        raise Fault(
            "InvalidParameterValue.OffsetInvalid",
            f"The Offset is {offset}; it must be a multiple of Limit, {limit}.",
        )
    return found
