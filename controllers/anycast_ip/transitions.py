"""The last times that a node was opened and closed, in an annotation: Events are gone after an hour.

It is written together with the taint, so that it costs no write, and decides nothing.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from kube.types import Node, Value, complete
from webhook.anycast_ip import HISTORY

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
