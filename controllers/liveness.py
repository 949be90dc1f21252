"""Answer the liveness probe: does work of this process hang, or has an informer been silent for too long?

A replica that does not lead has neither work nor informers and is alive.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kube.informer import RUNNING as LISTENING
from kube.informer import ListWatch, Registry

LONGEST_RUN = 600.0
"""Seconds for one key, or one call of an executor: each call within has a timeout far below."""
LONGEST_SILENCE = 420.0
"""Seconds; the manager ends the process after 300, so this is for one that cannot."""


class Runs(Protocol):
    """Something that works; *longest_running* is the age in seconds of its oldest work, 0 while idle."""

    name: str

    def longest_running(self) -> float: ...


RUNNING: Registry[Runs] = Registry()


def problem() -> str | None:
    """None while this process is alive; else what hangs, and since when."""
    return diagnose(RUNNING.list(), LISTENING.list())


def diagnose(running: Iterable[Runs], following: Iterable[ListWatch]) -> str | None:
    hanging = [
        f"{each.name} has been at one piece of work for {seconds:.0f} s, the bound is {LONGEST_RUN:.0f} s"
        for each in running
        if (seconds := each.longest_running()) > LONGEST_RUN
    ]
    silent = [
        f"nothing was received of {each.kind} for {seconds:.0f} s, the bound is {LONGEST_SILENCE:.0f} s"
        for each in following
        if (seconds := each.silence) > LONGEST_SILENCE and not each.optional
    ]
    return "; ".join(sorted(hanging + silent)) or None
