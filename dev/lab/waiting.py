"""Waiting is for a condition and has an end, which is later on a busy machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

from dev.lab.errors import LabError

T = TypeVar("T")
MOST = 8.0


def stretch() -> float:
    """How much later a deadline is for the load of this machine: threads that want to run for each processor."""
    return min(MOST, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def at_most(seconds: float) -> str:
    """The option with which kubectl waits for so long, and longer on a busy machine."""
    return f"--timeout={seconds * stretch():.0f}s"


def until(
    condition: Callable[[], T | None],
    seconds: float = 10.0,
    what: str = "the condition to hold",
    *,
    every: float = 0.02,
    check: Callable[[], None] = lambda: None,
) -> T:
    """The first truthy answer of *condition*; LabError names *what* was awaited when *seconds* are over.

    *check* runs before each look and may raise to end the wait.
    """
    begin = time.monotonic()
    while True:
        check()
        answer = condition()
        if answer:
            return answer
        waited = time.monotonic() - begin
        if waited >= seconds * stretch():
            raise LabError(f"waited {waited:.0f} s without success: {what}")
        time.sleep(every)
