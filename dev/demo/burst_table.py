"""The table of replicas, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from api.elasticity import PLACEMENT
from dev.demo.burst import Course, Replicas
from dev.demo.table import NOTHING

GATED = "gated"


class State(StrEnum):
    WAITING = "waiting"
    HOME = "home"
    AWAY = "away"
    GONE = "gone"


@dataclass(frozen=True)
class Row:
    pod: str
    placement: str
    node: str
    why: str
    state: State

    @property
    def cells(self) -> tuple[str, ...]:
        return (self.pod, self.placement, self.node, self.why)


@dataclass(frozen=True)
class Proof:
    """One replica, with the revisions that show the order of events; "-" where there was none."""

    pod: str
    node: str
    born: str
    placed: str
    bound: str
    left: str


def rows(replicas: Replicas) -> list[Row]:
    """Every replica that there is or was, in the order in which they came."""
    return [_row(course) for course in replicas.courses.values()]


def summary(replicas: Replicas) -> str:
    standing = replicas.standing()
    away = sum(course.is_away for course in standing)
    return f"{len(standing) - away} local, {away} on the super node"


def proofs(replicas: Replicas) -> list[Proof]:
    return [_proof(course) for course in replicas.courses.values()]


def news(before: Sequence[Row], after: Sequence[Row]) -> list[str]:
    """What changed from one table to the next, a line for each replica."""
    known = {_sentence(row) for row in before}
    return [sentence for row in after if (sentence := _sentence(row)) not in known]


def _row(course: Course) -> Row:
    return Row(
        pod=course.name,
        placement=course.pod.metadata.annotations.get(PLACEMENT, GATED),
        node=course.node or NOTHING,
        why=course.why or NOTHING,
        state=_state(course),
    )


def _state(course: Course) -> State:
    if course.left is not None:
        return State.GONE
    if course.bound is None:
        return State.WAITING
    return State.AWAY if course.is_away else State.HOME


def _proof(course: Course) -> Proof:
    steps = (course.born, course.placed, course.bound, course.left)
    born, placed, bound, left = (NOTHING if step is None else str(step) for step in steps)
    return Proof(course.name, course.node or NOTHING, born, placed, bound, left)


def _sentence(row: Row) -> str:
    if row.state is State.GONE:
        return f"{row.pod} leaves {row.node}"
    if row.state is State.WAITING:
        return (
            f"{row.pod} is held by its gate"
            if row.placement == GATED
            else f"{row.pod} is placed: {row.placement}"
        )
    return f"{row.pod} is on {row.node} ({row.why})"
