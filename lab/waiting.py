"""Waiting is for a condition and has an end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from lab.errors import LabError

T = TypeVar("T")


def until(
    condition: Callable[[], T | None],
    seconds: float,
    what: str,
    *,
    every: float = 0.05,
    check: Callable[[], None] = lambda: None,
) -> T:
    """The first truthy answer of *condition*; LabError names *what* was awaited when *seconds* are over.

    *check* runs before each look and may raise to end the wait.
    """
    end = time.monotonic() + seconds
    while True:
        check()
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= end:
            raise LabError(f"waited {seconds:g} s in vain: {what}")
        time.sleep(every)
