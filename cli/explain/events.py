"""Events about an object, the last ones first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from cli.output import Document, Table, age
from kube.types import ObjectMeta, Value

MOST = 20


class Series(Value, frozen=True):
    count: int = 0
    last_observed_time: datetime | None = None


class Event(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    reason: str = ""
    message: str = ""
    reporting_component: str = ""
    count: int | None = None
    event_time: datetime | None = None
    last_timestamp: datetime | None = None
    series: Series | None = None

    @property
    def at(self) -> datetime | None:
        in_series = self.series.last_observed_time if self.series else None
        return in_series or self.last_timestamp or self.event_time or self.metadata.creation_timestamp


class EventRow(Document, frozen=True):
    at: datetime | None
    type: str
    reason: str
    source: str
    message: str


def events(found: Sequence[Event]) -> Iterator[EventRow]:
    latest = sorted(found, key=lambda each: each.at or datetime.min.replace(tzinfo=UTC), reverse=True)
    for each in latest[:MOST]:
        yield EventRow(each.at, each.type, each.reason, each.reporting_component, each.message)


def table(rows: Sequence[EventRow], now: datetime) -> Table:
    return Table(
        ("EVENT", "TYPE", "REASON", "MESSAGE"),
        [(age(each.at, now), each.type, each.reason, " ".join(each.message.split())) for each in rows],
        empty="No Events.",
    )
