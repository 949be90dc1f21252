"""The table of nodes in a rollout, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from dev.demo.rollout import OK, Course, Rollout, gone
from dev.demo.rollout_promises import lead_of
from dev.demo.table import NOTHING

REASONS = {OK: "200 ok", 503: "503"}


class State(StrEnum):
    WAITING = "waiting"
    ON = "on"
    OFF = "off"


@dataclass(frozen=True)
class Row:
    node: str
    health: str
    pods: str
    state: State

    @property
    def cells(self) -> tuple[str, ...]:
        return (self.node, self.state.value, self.health, self.pods)


@dataclass(frozen=True)
class Proof:
    """One node, with the revisions that show the order of events; "-" where there was none."""

    node: str
    off: str
    first_gone: str
    first_new: str
    on: str
    failing: str
    lasted: str


def rows(rollout: Rollout) -> list[Row]:
    """Every node, by its name."""
    return [_row(course) for _, course in sorted(rollout.courses.items())]


def summary(rollout: Rollout) -> str:
    off = sum(course.is_off for course in rollout.courses.values())
    new = sum(_is_new(course) for course in rollout.courses.values())
    return f"{off} off, {new} of {len(rollout.courses)} updated"


def proofs(rollout: Rollout) -> list[Proof]:
    return [_proof(course) for _, course in sorted(rollout.courses.items())]


def news(before: Sequence[Row], after: Sequence[Row]) -> list[str]:
    """What changed from one table to the next, a line for each node."""
    known = {_sentence(row) for row in before}
    return [sentence for row in after if (sentence := _sentence(row)) not in known]


def _row(course: Course) -> Row:
    standing = course.standing()
    old = sum(course.is_old(each) for each in standing)
    counts = {"v1": old, "v2": len(standing) - old}
    return Row(
        node=course.node,
        health=REASONS.get(course.status or 0, NOTHING),
        pods=", ".join(f"{number} {template}" for template, number in counts.items() if number) or "none",
        state=_state(course),
    )


def _state(course: Course) -> State:
    if course.is_off:
        return State.OFF
    return State.ON if course.status == OK else State.WAITING


def _is_new(course: Course) -> bool:
    standing = course.standing()
    return bool(standing) and not any(map(course.is_old, standing))


def _proof(course: Course) -> Proof:
    left, changes = gone(course), course.changes
    new = [each.born for each in course.residents if not course.is_old(each)]
    leads = [lead for each in left if (lead := lead_of(course, each)) is not None]
    return Proof(
        node=course.node,
        off=str(changes[0].revision) if changes else NOTHING,
        first_gone=str(min(each.left or 0 for each in left)) if left else NOTHING,
        first_new=str(min(new)) if new else NOTHING,
        on=str(changes[1].revision) if len(changes) > 1 else NOTHING,
        failing=f"{min(leads):.1f} s" if leads else NOTHING,
        lasted=_lasted(course),
    )


def _lasted(course: Course) -> str:
    if len(course.changes) < 2:
        return NOTHING
    off, on = course.changes[:2]
    return f"{(on.seen - off.seen) / timedelta(seconds=1):.1f} s"


def _sentence(row: Row) -> str:
    return f"{row.node} is {row.state}; health check: {row.health}; pods: {row.pods}"
