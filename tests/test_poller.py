"""A flood of new connections does not delay the requests of clients that were served before."""

from __future__ import annotations

import selectors
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from webhook.poller import NEWCOMERS, Event, in_order


@dataclass
class Conn:
    name: str
    used: bool = False
    address: str = "10.0.0.1"

    @property
    def client(self) -> tuple[str, int]:
        return self.address, 1


def event(conn: Conn | None) -> Event:
    callback = print if conn is None else partial(print, conn)
    return selectors.SelectorKey(0, 0, selectors.EVENT_READ, callback), selectors.EVENT_READ


def ordered(conns: Sequence[Conn | None]) -> list[str]:
    found = [getattr(key.data, "args", [None])[0] for key, _ in in_order([event(each) for each in conns])]
    return [each.name if each else "loop" for each in found]


FLOOD = [Conn(f"new {number}") for number in range(3 * NEWCOMERS)]


def test_served_clients_and_the_loop_come_first_and_few_others_follow() -> None:
    served = Conn("served", used=True)
    assert ordered([*FLOOD, served, None]) == ["served", "loop", *(each.name for each in FLOOD[:NEWCOMERS])]


def test_each_address_has_its_turn() -> None:
    other = [Conn(f"other {number}", address="10.0.0.2") for number in range(2)]
    first = ordered([*FLOOD, *other])
    assert len(first) == NEWCOMERS
    assert first[:4] == ["new 0", "other 0", "new 1", "other 1"]


def test_few_newcomers_wait_for_the_others_too() -> None:
    served = Conn("served", used=True)
    assert ordered([FLOOD[0], None, served]) == ["served", "loop", "new 0"]
