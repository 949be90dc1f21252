"""The clocks that a controller reads, together so that tests replace both."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Clock:
    """*now* is the time of day, for what is written; *monotonic* are seconds that no one sets, for waiting."""

    now: Callable[[], datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic


CLOCK = Clock()
