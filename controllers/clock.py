"""The clocks that a controller reads, together so that tests replace both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from runtime import time, utc_now


@dataclass(frozen=True)
class Clock:
    """*now* is the time of day, for what is written; *monotonic* are seconds that no one sets, for waiting."""

    now: Callable[[], datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic


CLOCK = Clock()
