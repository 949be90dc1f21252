"""The plan of a rollout, and how the last ones ended, as the status of an IngressDaemonSet has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from api.ingress_daemonset.types import time_of
from cli.output import Cell, Document, Table, age, bad, duration, good, warning

Raw = Mapping[str, Any]


class Course(Document, frozen=True):
    """A rollout in progress; *next_nodes* has five at most, *estimated_end* is None when it cannot be known.

    *window_opens_at* is None while nodes may begin.
    """

    from_revision: str
    to_revision: str
    started_at: datetime | None
    nodes: int
    nodes_left: int
    at_a_time: int
    wave: int
    waves: int
    next_nodes: tuple[str, ...]
    estimated_end: datetime | None
    window_opens_at: datetime | None = None


class Ended(Document, frozen=True):
    """A rollout that ended; *nodes* were updated."""

    from_revision: str
    to_revision: str
    started_at: datetime | None
    ended_at: datetime | None
    result: str
    nodes: int
    seconds: int


def course_of(status: Raw) -> Course | None:
    raw = status.get("rollout")
    if not raw:
        return None
    return Course(
        from_revision=raw.get("fromRevision", ""),
        to_revision=raw.get("toRevision", ""),
        started_at=time_of(raw.get("startedAt", "")),
        nodes=raw.get("nodes", 0),
        nodes_left=raw.get("nodesLeft", 0),
        at_a_time=raw.get("atATime", 0),
        wave=raw.get("wave", 0),
        waves=raw.get("waves", 0),
        next_nodes=tuple(raw.get("nextNodes") or ()),
        estimated_end=time_of(raw.get("estimatedEnd", "")),
        window_opens_at=time_of(raw.get("windowOpensAt", "")),
    )


def history_of(status: Raw) -> tuple[Ended, ...]:
    """The latest first."""
    return tuple(
        Ended(
            raw.get("fromRevision", ""),
            raw.get("toRevision", ""),
            time_of(raw.get("startedAt", "")),
            time_of(raw.get("endedAt", "")),
            raw.get("result", ""),
            raw.get("nodes", 0),
            raw.get("seconds", 0),
        )
        for raw in status.get("history") or ()
    )


def sentence(course: Course, now: datetime) -> str:
    """Where it is, and when it is expected to end."""
    return (
        f"wave {course.wave} of {course.waves}, {course.nodes_left} of {course.nodes} nodes left,"
        f" {course.at_a_time} at a time; {opening(course, now)}{expectation(course, now)}"
    )


def opening(course: Course, now: datetime) -> str:
    """Empty while nodes may begin."""
    if course.window_opens_at is None or course.window_opens_at <= now:
        return ""
    left = duration((course.window_opens_at - now).total_seconds())
    return f"its window opens in {left}, at {course.window_opens_at:%Y-%m-%d %H:%M} UTC; "


def expectation(course: Course, now: datetime) -> str:
    if course.estimated_end is None:
        return "its end is not known"
    if course.estimated_end <= now:
        return "it should have ended"
    left = duration((course.estimated_end - now).total_seconds())
    return f"about {left} left, until {course.estimated_end:%H:%M:%S} UTC"


def history_table(history: Sequence[Ended], now: datetime) -> Table:
    rows: list[Sequence[Cell]] = [
        (
            age(each.ended_at, now),
            _result(each.result),
            str(each.nodes),
            duration(each.seconds),
            f"{each.from_revision or '?'} → {each.to_revision}",
        )
        for each in history
    ]
    return Table(("ENDED", "RESULT", "NODES", "TOOK", "TEMPLATE"), rows)


def _result(result: str) -> Cell:
    if result in ("Halted", "RolledBack"):
        return bad(result)
    return good(result) if result == "Complete" else warning(result)
