"""Which addresses are in the allow-list, and not yet for long enough to be bound."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from cli.output import Document, Table, duration, moment
from controllers.anycast_ip.entries import IN_USE, Entries, Entry
from settings.anycast_ip import AllowList


class Announcing(Document, frozen=True):
    """*until* is the earliest time of a bind: the leader counts from the end of the write, which began at *since*."""

    node: str
    address: str
    id: str
    state: str
    since: datetime
    until: datetime


def announcing(found: Entries, settings: AllowList, now: datetime) -> tuple[Announcing, ...]:
    """The one that is next comes first."""
    waiting = [
        _announcing(each, each.since, settings) for each in found if each.since and each.state != IN_USE
    ]
    return tuple(sorted((each for each in waiting if each.until > now), key=lambda each: each.until))


def _announcing(entry: Entry, since: datetime, settings: AllowList) -> Announcing:
    until = since + timedelta(seconds=settings.announce_before)
    return Announcing(entry.node, entry.address, entry.id, entry.state, since, until)


def table(found: Sequence[Announcing], now: datetime) -> Table:
    rows = [
        (
            each.address,
            each.node or each.state,
            moment(each.since),
            duration((each.until - now).total_seconds()),
        )
        for each in found
    ]
    return Table(("ANNOUNCED", "FOR", "IN THE ALLOW-LIST SINCE", "BOUND IN"), rows)
