"""Who had an IP before: what the leader has stored of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from cli.output import Document, Part, Table, moment
from controllers.ip_reservation.history import History
from settings.ip_reservation import Pools

OFF = "set ipReservation.pools.enabled, and ipReservation.pools.history to a time, for example 24h"


class FormerHolder(Document, frozen=True):
    """A pod that had the IP; for what is no pod, *namespace* is empty, and *pod* Calico's handle."""

    namespace: str
    pod: str
    node: str
    since: datetime | None
    until: datetime


class Gap(Document, frozen=True):
    """No leader saw the blocks: who had the IP for a moment in between is not known."""

    begin: datetime
    end: datetime


class Past(Document, frozen=True):
    """*former* holders, the latest first: all since *complete_since*, but for gaps.

    *unknown* says why they are not known.
    """

    former: tuple[FormerHolder, ...] = ()
    complete_since: datetime | None = None
    gaps: tuple[Gap, ...] = ()
    unknown: str = ""


def past_of(history: History, settings: Pools, ip: str, now: datetime) -> Past:
    begin = now - timedelta(seconds=settings.history)
    former = [each for each in history.former if each.ip == ip and each.until >= begin]
    return Past(
        former=tuple(
            FormerHolder(each.namespace, each.pod, each.node, each.since, each.until)
            for each in reversed(former)
        ),
        complete_since=history.complete_since(settings.history, now),
        gaps=tuple(Gap(*each) for each in history.gaps if each[1] >= begin),
    )


def parts(found: Past) -> Iterator[Part]:
    if found.unknown:
        yield f"Who had it before is not known: {found.unknown}"
        return
    rows = [
        (f"{each.namespace}/{each.pod}".lstrip("/"), each.node, moment(each.since), moment(each.until))
        for each in found.former
    ]
    begun = moment(found.complete_since)
    yield Table(
        ("HAD IT BEFORE", "NODE", "FROM", "UNTIL"), rows, empty=f"No pod had it before, since {begun}."
    )
    if rows:
        yield f"All since {begun} are shown."
    if found.gaps:
        gaps = ", ".join(f"{moment(each.begin)} to {moment(each.end)}" for each in found.gaps)
        yield f"No leader followed the blocks from {gaps}: who had it only then is not known."
