"""A selector that has the events of served clients first, and only a few of all others in one turn."""

import selectors
from collections import Counter
from collections.abc import Iterable
from typing import Any

NEWCOMERS = 4
"""In a turn of the main loop: a flood of them must not delay a request of a client that was served before."""

Event = tuple[selectors.SelectorKey, int]


class Poller(selectors.DefaultSelector):
    def select(self, timeout: float | None = None) -> list[Event]:
        """What is not in the answer is still ready in the next turn."""
        return in_order(super().select(timeout))


def in_order(events: list[Event]) -> list[Event]:
    """First of served clients, then the loop's own, then of some others."""
    newcomers = [event for event in events if _is_newcomer(event)]
    others = [event for event in events if not _is_newcomer(event)]
    if len(newcomers) > NEWCOMERS:
        newcomers = by_turns(newcomers)[:NEWCOMERS]
    return sorted(others, key=lambda event: _connection(event) is None) + newcomers


def by_turns(events: Iterable[Event]) -> list[Event]:
    """First one of each client address, then the second ones."""
    seen, numbered = Counter[str](), list[tuple[int, Event]]()
    for event in events:
        address = _connection(event).client[0]
        numbered.append((seen[address], event))
        seen[address] += 1
    return [event for _, event in sorted(numbered, key=lambda each: each[0])]


def _is_newcomer(event: Event) -> bool:
    """Whether it is of a connection on which no request has been answered yet."""
    connection = _connection(event)
    return connection is not None and not connection.used


def _connection(event: Event) -> Any:
    """None for the listener, and for what the threads have done."""
    arguments = getattr(event[0].data, "args", None)
    return arguments[0] if arguments else None
