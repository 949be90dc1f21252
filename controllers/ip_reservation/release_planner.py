"""Plan which reservations to release: those that are over, and the oldest when there are too many.

A reservation's time counts from the end of its pod, which the leader notes in the record when it first sees the pod
gone: so it survives a restart, and only the leader's clock counts. An address that its pod still has neither counts
nor is released, unless the pod's deletion was refused. Of several records for one pod, one stays. An unconfirmed record
neither counts nor ends; a forged one is dropped.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum

from msgspec.structs import replace

from calico.segment import IPReservation, Record
from controllers.ip_reservation.confirmations import Doubts
from kube.types import Pod
from settings import IPReservationSettings

SEALING = 60.0
"""Seconds beyond segmentMaxAge in which a segment's last write may be under way, and two clocks differ."""

Noted = tuple[IPReservation, list[Record]]
"""A segment and its records, with what is known of the ends of their pods."""
Rank = tuple[bool, bool, datetime]

Asking = tuple[str, str, datetime]
"""One admitted deletion: address, pod uid, and when by the webhook server's clock."""


class Life(Enum):
    """The state of a record's pod."""

    RUNNING = "running"
    TERMINATING = "terminating"
    GONE = "gone"


class Cause(StrEnum):
    """Why an address is released."""

    AGE = "age"
    COUNT = "count"
    GIVEN_BACK = "given-back"
    BY_HAND = "by-hand"
    FORGED = "forged"


@dataclass(frozen=True)
class Change:
    """Write *kept* to *segment*, or delete it."""

    segment: IPReservation
    kept: tuple[Record, ...]
    released: tuple[tuple[Record, Cause], ...]
    delete: bool


@dataclass(frozen=True)
class Pods:
    """What is known of the records' pods.

    *lives* by pod uid, where absent means gone; *waits* are the seconds since the leader first saw each asking for
    a pod that runs; *ends*, by record key, are when pods were seen gone; *doubts* are about whether they existed.
    """

    lives: Mapping[str, Life]
    waits: Mapping[Asking, float]
    ends: Mapping[str, datetime] = field(default_factory=dict)
    doubts: Doubts = field(default_factory=Doubts)

    def life_of(self, record: Record) -> Life:
        return self.lives.get(record.uid, Life.GONE)


def plan(
    segments: Iterable[IPReservation], pods: Pods, settings: IPReservationSettings, now: datetime
) -> list[Change]:
    """The segments to rewrite or to delete."""
    held = without_duplicates(segments)
    noted = [(segment, [note_end(record, pods, now) for record in records]) for segment, records in held]
    stored = {record.key for _, records in held for record in records if record.ended}
    causes = _causes(noted, stored, pods, settings, now)
    changes = []
    for segment, records in noted:
        kept = tuple(record for record in records if record not in causes)
        released = tuple((record, causes[record]) for record in records if record in causes)
        delete = not kept and is_sealed(segment, settings, now)
        # A write also repairs a malformed entry, for which Calico would give no pod an address.
        if delete or kept != segment.records or segment.malformed:
            changes.append(Change(segment, kept, released, delete))
    return changes


def without_duplicates(segments: Iterable[IPReservation]) -> list[Noted]:
    """Keep one record for each address of a pod: one that has ended, or that by which its deletion was last requested.

    A forced deletion is validated twice by the API server, and a drain repeats its evictions, and not always at the
    same webhook server. What has ended keeps its first end: a forged repetition prolongs nothing.
    """
    held = [(segment, segment.records) for segment in segments]
    last: dict[str, tuple[Rank, int]] = {}
    ends: dict[str, datetime] = {}
    for number, (_, records) in enumerate(held):
        for record in records:
            rank = (record.ended is not None, not record.late, record.last_asked)
            last[record.key] = max(last.get(record.key, (rank, number)), (rank, number))
            if record.ended:
                ends[record.key] = min(ends.get(record.key, record.ended), record.ended)
    return [
        (segment, [_first_end(each, ends) for each in records if _is_last(each, number, last)])
        for number, (segment, records) in enumerate(held)
    ]


def _is_last(record: Record, number: int, last: Mapping[str, tuple[Rank, int]]) -> bool:
    return not record.uid or last[record.key][1] == number


def _first_end(record: Record, ends: Mapping[str, datetime]) -> Record:
    return replace(record, ended=ends.get(record.key)) if record.uid else record


def is_sealed(segment: IPReservation, settings: IPReservationSettings, now: datetime) -> bool:
    """Whether no writer appends to it any more.

    Only then may it be deleted: Calico's API server guards no deletion by its resourceVersion, so an address
    that is appended at that moment would go with it.
    """
    created = segment.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)
    return now - created > timedelta(seconds=settings.segment_max_age + SEALING)


def note_end(record: Record, pods: Pods, now: datetime) -> Record:
    """*record* with the time at which its pod ended; without while the pod has its address or is unconfirmed."""
    if pods.life_of(record) is not Life.GONE or record.key in pods.doubts.unconfirmed:
        return replace(record, ended=None)
    return replace(record, ended=min(record.ended or pods.ends.get(record.key, now), now))


def asking_of(record: Record) -> Asking:
    return record.cidr, record.uid, record.last_asked


def may_be_given_back(record: Record, pods: Pods, settings: IPReservationSettings) -> bool:
    """Whether the pod has run so long since its deletion was admitted that it must have been refused elsewhere."""
    if record.key in pods.doubts.unconfirmed:
        return False
    waited = pods.waits.get(asking_of(record), 0.0)
    return pods.life_of(record) is Life.RUNNING and waited >= settings.give_back_after


def _causes(
    noted: Sequence[Noted], stored: Container[str], pods: Pods, settings: IPReservationSettings, now: datetime
) -> dict[Record, Cause]:
    """Why each record is released; by age only one whose end is *stored*, so that it shows when its time began."""
    causes = {}
    for segment, records in noted:
        named = segment.to_be_released.values()
        for record in records:
            if record.key in pods.doubts.forged:
                causes[record] = Cause.FORGED
            elif record.ended and record.cidr in named:
                causes[record] = Cause.BY_HAND
            elif record.key in stored and is_over(record, settings, now):
                causes[record] = Cause.AGE
            elif may_be_given_back(record, pods, settings):
                causes[record] = Cause.GIVEN_BACK
    reserved = [record for _, records in noted for record in records if record.ended and record not in causes]
    return causes | dict.fromkeys(_beyond(reserved, settings.ip_reserve_max_count), Cause.COUNT)


def is_over(record: Record, settings: IPReservationSettings, now: datetime) -> bool:
    """Whether its time has passed since its pod ended."""
    return record.ended is not None and now - record.ended >= timedelta(seconds=settings.ip_reserve_time)


def _beyond(reserved: Sequence[Record], count: int) -> list[Record]:
    """The records whose time began first, so that *count* addresses stay."""
    latest = {record.cidr: _began(record) for record in sorted(reserved, key=_began)}
    oldest_first = sorted(latest, key=lambda cidr: latest[cidr])
    surplus = set(oldest_first[: max(0, len(oldest_first) - count)])
    return [record for record in reserved if record.cidr in surplus]


def _began(record: Record) -> tuple[datetime, datetime]:
    return record.ended or record.at, record.at


def life_of(pod: Pod | None) -> Life:
    if pod is None or pod.finished:
        return Life.GONE
    return Life.TERMINATING if pod.terminating else Life.RUNNING
