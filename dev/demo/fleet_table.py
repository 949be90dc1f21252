"""The table of nodes that need an address, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from dev.demo.fleet import Course, Fleet
from dev.demo.fleet_promises import seconds_bound
from dev.demo.table import NOTHING, duration


class State(StrEnum):
    TAINTED = "tainted"
    OPEN = "open"
    GONE = "gone"


@dataclass(frozen=True)
class Row:
    """*cloud* is how the cloud has the address, *opened* when the node did, or how long it has been waiting."""

    node: str
    born: str
    address: str
    cloud: str
    opened: str
    pods: int
    state: State

    @property
    def cells(self) -> tuple[str, ...]:
        return (self.node, self.born, self.address, self.cloud, self.opened, str(self.pods))


@dataclass(frozen=True)
class Proof:
    """One node, with the revisions that show the order of events; "-" where there was none."""

    node: str
    address: str
    tainted: str
    opened: str
    first_pod: str
    bound: str
    released: str


def rows(fleet: Fleet, now: datetime) -> list[Row]:
    """Every node that there is or was, in the order in which they came."""
    return [_row(fleet, course, now) for course in fleet.courses.values()]


def summary(fleet: Fleet) -> str:
    living = fleet.living()
    gone = len(fleet.courses) - len(living)
    return f"{sum(each.is_open for each in living)} of {len(living)} open" + (
        f", {gone} gone" if gone else ""
    )


def proofs(fleet: Fleet) -> list[Proof]:
    return [_proof(fleet, course) for course in fleet.courses.values()]


def news(before: Sequence[Row], after: Sequence[Row]) -> list[str]:
    """What changed from one table to the next, a line for each node."""
    known = {_sentence(row) for row in before}
    return [sentence for row in after if (sentence := _sentence(row)) not in known]


def _row(fleet: Fleet, course: Course, now: datetime) -> Row:
    return Row(
        node=course.name,
        born=State.OPEN if course.changes[0][1] else State.TAINTED,
        address=course.address.ip if course.address else NOTHING,
        cloud=_in_cloud(fleet, course),
        opened=_opened(course, now),
        pods=sum(not each.gone for each in fleet.came_to(course)),
        state=_state(course),
    )


def _state(course: Course) -> State:
    if course.gone:
        return State.GONE
    return State.OPEN if course.is_open else State.TAINTED


def _in_cloud(fleet: Fleet, course: Course) -> str:
    if course.address is None or fleet.last is None:
        return NOTHING
    there = any(each.id == course.address.id for each in fleet.last.addresses)
    return course.address.status if there else "released"


def _opened(course: Course, now: datetime) -> str:
    if course.openings:
        return f"after {_seconds(course.born, course.openings[0].seen):.1f} s"
    return f"waits {duration(max(0.0, _seconds(course.born, now)))}"


def _proof(fleet: Fleet, course: Course) -> Proof:
    pods = [each.revision for each in fleet.came_to(course)]
    lead = seconds_bound(fleet, course)
    return Proof(
        node=course.name,
        address=course.address.ip if course.address else NOTHING,
        tainted=NOTHING if course.changes[0][1] else str(course.changes[0][0]),
        opened=str(course.openings[0].revision) if course.openings else NOTHING,
        first_pod=str(min(pods)) if pods else NOTHING,
        bound=NOTHING if lead is None else f"{lead:.2f} s",
        released=_released(course),
    )


def _released(course: Course) -> str:
    if course.gone is None or course.cleared is None:
        return NOTHING
    return f"{_seconds(course.gone, course.cleared):.1f} s"


def _sentence(row: Row) -> str:
    address = f"{row.address} is {row.cloud}" if row.address != NOTHING else "no address yet"
    if row.state is State.GONE:
        return f"{row.node} is gone; {address}"
    if row.state is State.OPEN:
        return f"{row.node} opened {row.opened}; {address}; pods: {row.pods}"
    return f"{row.node} is tainted; {address}"


def _seconds(begin: datetime, end: datetime) -> float:
    return (end - begin) / timedelta(seconds=1)
