"""A step: something that an operator does, and what was promised about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dev.demo.promises import Judge
from dev.demo.world import World


@dataclass(frozen=True)
class Step:
    """*play* does it, waits until it has had its effect, and returns the judge of the promises."""

    title: str
    story: str
    play: Callable[[World], Judge]
