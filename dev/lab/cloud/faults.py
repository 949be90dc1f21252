"""Inject faults into calls, at random, as the knobs say."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from dev.lab.cloud.config import Knobs

SLOW_SECONDS = 10.0


@dataclass(frozen=True)
class Strike:
    """*kind* is what the caller gets instead of the answer: an error code, ``HTTP 502``, ``HTML`` or nothing."""

    kind: str = ""
    lost: bool = False
    delay: float = 0.0


def strike(knobs: Knobs, action: str, dice: Random) -> Strike:
    if knobs.faulty_actions and action not in knobs.faulty_actions:
        return Strike()
    shares = {
        "RequestLimitExceeded": knobs.throttled,
        "InternalError": knobs.internal_errors,
        "HTTP 502": knobs.server_errors,
        "HTML": knobs.html,
    }
    kind = next((kind for kind, share in shares.items() if hits(dice, share)), "")
    slow = SLOW_SECONDS if hits(dice, knobs.slow) else 0.0
    return Strike(kind, hits(dice, knobs.lost), slow)


def hits(dice: Random, share: float) -> bool:
    return dice.random() < share
