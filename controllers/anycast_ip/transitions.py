"""The last times that a node was opened and closed, in an annotation: Events are gone after an hour.

It is written together with the taint, so that it costs no write, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from api.anycast_ip import HISTORY
from kube.types import Node, Value, complete

SIZE = 5


class Transition(Value, frozen=True):
    """The node was opened or closed; *address* is the id of the one that it had got, or had lost."""

    at: datetime
    to: str
    address: str = ""


OPEN, CLOSED = "open", "closed"

complete(Transition)
DECODER = msgspec.json.Decoder(tuple[Transition, ...])


def transitions_of(node: Node) -> tuple[Transition, ...]:
    """The latest first; none where another client has written something else."""
    try:
        return DECODER.decode(node.metadata.annotations.get(HISTORY, "[]"))
    except (msgspec.MsgspecError, ValueError):
        return ()


def with_transition(node: Node, at: datetime, to: str, address: str) -> dict[str, str]:
    """The annotation, with one more of the last few."""
    latest = Transition(at.replace(microsecond=0), to, address)
    kept = (latest, *transitions_of(node))[:SIZE]
    return {HISTORY: msgspec.json.encode(kept).decode()}


def opened_after(transitions: Sequence[Transition], created: datetime | None) -> float | None:
    """Seconds from when the node was last closed, or from its creation, until it was last opened.

    None when it was never opened, or when that is no longer known.
    """
    for index, each in enumerate(transitions):
        if each.to == OPEN:
            since = closed_since(transitions[index + 1 :], created if len(transitions) < SIZE else None)
            return max(0.0, (each.at - since).total_seconds()) if since else None
    return None


def closed_since(transitions: Sequence[Transition], created: datetime | None) -> datetime | None:
    """Since when the node had been closed before these *transitions* were followed by another, or until now."""
    if not transitions:
        return created
    return transitions[0].at if transitions[0].to == CLOSED else None
