"""The table of held addresses, as values: what is shown is decided here, how it looks elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from dev.demo.promises import time_held
from dev.lab.history import Departure, History, Hold, addresses

NOTHING = "-"
LINGER = timedelta(seconds=4)
"""How long what was released stays to be seen."""


class State(StrEnum):
    GOING = "going"
    HELD = "held"
    RELEASED = "released"


@dataclass(frozen=True)
class Rules:
    """The part of the configuration that says how long addresses are held, in seconds and in number."""

    reserve_time: float
    max_count: int


@dataclass(frozen=True)
class Row:
    address: str
    pod: str
    node: str
    owner: str
    reason: str
    held: str
    release: str
    state: State

    @property
    def cells(self) -> tuple[str, ...]:
        return (self.address, self.pod, self.held, self.release, self.reason, self.node, self.owner)


def rows(history: History, rules: Rules, now: datetime) -> list[Row]:
    """Every address that is held or was until a moment ago, the oldest first."""
    shown = [hold for hold in history.holds if hold.released is None or now - hold.released < LINGER]
    return [_row(hold, rules, now) for hold in shown]


def summary(history: History) -> str:
    held = len(history.standing())
    return f"{held} held, {len(history.holds) - held} released"


@dataclass(frozen=True)
class Proof:
    """One pod that is gone, with the revisions that show the order of events; "-" where there was none."""

    pod: str
    address: str
    how: str
    reserved: str
    gone: str
    released: str
    held: str


def proofs(history: History, without: Collection[str] = ()) -> list[Proof]:
    """Of every pod that is gone, in the order of their ends, *without* those of namespaces of no concern."""
    ordered = sorted(history.departures.values(), key=lambda departure: departure.revision)
    return [
        _proof(history, departure, cidr)
        for departure in ordered
        if departure.pod.metadata.namespace not in without
        for cidr in sorted(addresses(departure.pod))
    ]


def news(before: Sequence[Row], after: Sequence[Row]) -> list[str]:
    """What changed from one table to the next, a line for each address."""
    states = {row.address: row.state for row in before}
    return [_sentence(row) for row in after if states.get(row.address) is not row.state]


def duration(seconds: float) -> str:
    """In whole seconds, or minutes when there are many."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _proof(history: History, departure: Departure, cidr: str) -> Proof:
    hold = next((each for each in history.holds_of(departure.pod) if each.record.cidr == cidr), None)
    lasted = time_held(hold) if hold else None
    return Proof(
        pod="/".join((departure.pod.metadata.namespace, departure.pod.metadata.name)),
        address=cidr.partition("/")[0],
        how=hold.record.reason if hold else NOTHING,
        reserved=str(hold.since) if hold else NOTHING,
        gone=str(departure.revision),
        released=str(hold.until) if hold and hold.until else NOTHING,
        held=NOTHING if lasted is None else f"{lasted:.1f} s",
    )


def _row(hold: Hold, rules: Rules, now: datetime) -> Row:
    record = hold.record
    end = hold.released or now
    return Row(
        address=record.cidr.partition("/")[0],
        pod=f"{record.namespace}/{record.pod}",
        node=record.node,
        owner=record.owner or "no owner",
        reason=record.reason,
        held=duration(max(0.0, (end - record.at) / timedelta(seconds=1))),
        release=_release(hold, rules, now),
        state=_state(hold),
    )


def _state(hold: Hold) -> State:
    if hold.until is not None:
        return State.RELEASED
    return State.HELD if hold.record.ended else State.GOING


def _release(hold: Hold, rules: Rules, now: datetime) -> str:
    if hold.until is not None:
        lasted = time_held(hold)
        return "released" if lasted is None else f"released after {duration(lasted)}"
    if hold.record.ended is None:
        return f"{duration(rules.reserve_time)} after its pod's end"
    since_end = max(0.0, (now - hold.record.ended) / timedelta(seconds=1))
    left = rules.reserve_time - since_end
    return f"in {duration(left)}" if left > 0 else "due"


def _sentence(row: Row) -> str:
    if row.state is State.RELEASED:
        return f"{row.address} {row.release} (was {row.pod})"
    if row.state is State.HELD:
        return f"{row.address} is held: {row.pod} is gone; to be released {row.release}"
    return f"{row.address} is reserved for {row.pod} on {row.node} ({row.owner}, {row.reason})"
