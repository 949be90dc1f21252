"""Whether a canary is well by its metric: the measurements so far are in the status, and each counts once.

One without a conclusive value neither promotes nor fails it. Good ones follow each other without a longer gap than
some intervals: what was not measured, as while no leader ran, is not taken for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from api.ingress_daemonset.pacing import NODES, Metric
from api.ingress_daemonset.types import time_of
from controllers.ingress_daemonset.desired import digest
from kube.types import rfc3339

Raw = Mapping[str, Any]
LONGEST_GAP = 3
"""Intervals between two good measurements at most: one that is lost, and one that is late, interrupt nothing."""
PASSING = ("passingSince", "passedAt")
OF_THE_LAST = ("value", "message", "unknownSince")
"""Fields that say what the last measurement has shown, and no other."""


class Query(NamedTuple):
    """What to measure every *interval* seconds, for the canary of this id."""

    canary: str
    text: str
    interval: int


@dataclass(frozen=True)
class Measurement:
    """What *query* has that was sent *at* a time; without a *value*, *error* says why."""

    query: Query
    at: datetime
    value: float | None = None
    error: str = ""


def filled(query: str, nodes: Iterable[str]) -> str:
    """With the names of the canary's *nodes*; in brackets, a dot needs no backslash, which a string would take."""
    return query.replace(NODES, "|".join(sorted(nodes)).replace(".", "[.]"))


def judged(wanted: Metric, stored: Raw, measured: Measurement | None) -> dict[str, Any]:
    """The field of the status after *measured*. What is stored for another metric is void."""
    revision = digest(msgspec.to_builtins(wanted))[:10]
    found = dict(stored) if stored.get("revision") == revision else {"revision": revision, "failures": 0}
    if measured is None or has_failed(found) or _is_counted(measured, found):
        return found
    at = rfc3339(measured.at)
    unknown_since = found.get("unknownSince", at)
    found = {name: each for name, each in found.items() if name not in OF_THE_LAST} | {"measuredAt": at}
    if measured.value is None:
        return found | {"unknownSince": unknown_since, "message": measured.error}
    found["value"] = f"{measured.value:.10g}"
    if problem := _out_of_bounds(wanted, measured.value):
        return _failed(wanted, interrupted(found), problem, measured.at)
    since = found["passingSince"] if _continues(wanted, found, measured.at) else at
    return found | {"passingSince": since, "passedAt": at}


def interrupted(found: Raw) -> dict[str, Any]:
    """The time in which it was good begins again; what was out of bounds stays counted."""
    return {name: each for name, each in found.items() if name not in PASSING}


def has_passed(wanted: Metric, found: Raw, now: datetime) -> bool:
    """Whether it was good for long enough, the last time just now."""
    since, last = (time_of(found.get(name, "")) for name in PASSING)
    if since is None or last is None or "message" in found or has_failed(found):
        return False
    return last - since >= timedelta(seconds=wanted.for_seconds) and _continues(wanted, found, now)


def has_failed(found: Raw) -> bool:
    return "failedAt" in found


def sentence(wanted: Metric, found: Raw) -> str:
    """What the canary waits for."""
    if has_failed(found):
        return f"its metric has failed: {found['message']}"
    if "unknownSince" in found:
        return f"its metric is not known since {found['unknownSince']}: {found['message']}"
    if "message" in found:
        return f"its metric: {found['message']}"
    if "passingSince" in found:
        return f"its metric is good since {found['passingSince']}, and has to be for {wanted.for_seconds} s"
    return "its metric has not been measured yet"


def _is_counted(measured: Measurement, found: Raw) -> bool:
    """By whole seconds, as the status has them."""
    last = time_of(found.get("measuredAt", ""))
    return last is not None and measured.at.replace(microsecond=0) <= last


def _continues(wanted: Metric, found: Raw, moment: datetime) -> bool:
    last = time_of(found.get("passedAt", ""))
    longest = timedelta(seconds=LONGEST_GAP * wanted.interval_seconds)
    return last is not None and "passingSince" in found and moment - last <= longest


def _failed(wanted: Metric, found: dict[str, Any], problem: str, at: datetime) -> dict[str, Any]:
    failures = found.get("failures", 0) + 1
    found |= {"failures": failures, "message": f"{problem} ({failures} of {wanted.failure_limit})"}
    return found | ({"failedAt": rfc3339(at)} if failures >= wanted.failure_limit else {})


def _out_of_bounds(wanted: Metric, value: float) -> str:
    if wanted.max is not None and value > wanted.max:
        return f"it is {value:.10g}, above max ({wanted.max:g})"
    if wanted.min is not None and value < wanted.min:
        return f"it is {value:.10g}, below min ({wanted.min:g})"
    return "" if wanted.has_bounds else "it has neither min nor max"
