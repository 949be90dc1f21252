"""How long to wait after the n-th failure in a row."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Seconds: *base*, doubled with each failure up to *cap*, and up to *jitter* times as much again."""

    base: float
    cap: float
    jitter: float = 0.0

    def delay(self, failures: int) -> float:
        # 2**64 times any base is beyond any cap; a float power would overflow one day.
        delay = min(self.cap, self.base * 2.0 ** min(failures - 1, 64))
        return delay * (1 + random.uniform(0, self.jitter))  # noqa: S311 - spreads load, keeps no secret
