"""An address is released when its hold is over, the oldest first when too many are held.

The hold counts from the end of the pod, which the leader notes in the record when it first sees the pod gone;
so it survives a restart, and no clock but the leader's is compared with itself. An address whose pod still has
it takes nothing out of circulation: it neither counts nor is released, unless the deletion did not happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, StrEnum

from msgspec.structs import replace

from calico.segment import IPReservation, Record
from kube.objects import Pod
from settings import IPReservationSettings


class Life(Enum):
    """What has become of a record's pod."""

    RUNNING = "running"
    TERMINATING = "terminating"
    GONE = "gone"


class Cause(StrEnum):
    """Why an address is released."""

    AGE = "age"
    COUNT = "count"
    GIVEN_BACK = "given-back"


@dataclass(frozen=True)
class Change:
    """*segment* is to hold *kept* from now on; nothing kept means that it is deleted."""

    segment: IPReservation
    kept: tuple[Record, ...]
    released: tuple[tuple[Record, Cause], ...]


def plan(
    segments: Iterable[IPReservation],
    lives: Mapping[str, Life],
    settings: IPReservationSettings,
    now: datetime,
) -> list[Change]:
    """The segments to rewrite; *lives* by pod uid, where absent means gone."""
    noted = [
        (segment, [note_end(record, lives.get(record.uid, Life.GONE), now) for record in segment.records])
        for segment in segments
    ]
    causes = _causes([record for _, records in noted for record in records], lives, settings, now)
    changes = [_change(segment, records, causes) for segment, records in noted]
    return [change for change in changes if _is_needed(change)]


def _is_needed(change: Change) -> bool:
    """A write also heals an entry that a hand broke: Calico would give no pod an address."""
    segment = change.segment
    return change.kept != segment.records or not change.kept or bool(segment.malformed)


def note_end(record: Record, life: Life, now: datetime) -> Record:
    """*record* with the time at which its pod ended, or without while the pod has its address."""
    if life is not Life.GONE:
        return replace(record, ended=None)
    if record.ended is None:
        return replace(record, ended=now)
    return replace(record, ended=min(record.ended, now))


def may_be_given_back(record: Record, life: Life, settings: IPReservationSettings, now: datetime) -> bool:
    """Whether the deletion that the address was reserved for must have been refused by somebody else."""
    waited = now - record.last_asked
    return life is Life.RUNNING and waited >= timedelta(seconds=settings.give_back_after)


def _causes(
    records: Sequence[Record], lives: Mapping[str, Life], settings: IPReservationSettings, now: datetime
) -> dict[Record, Cause]:
    causes = {record: cause for record in records if (cause := _own_cause(record, lives, settings, now))}
    held = [record for record in records if record.ended and record not in causes]
    return causes | dict.fromkeys(_beyond(held, settings.ip_reserve_max_count), Cause.COUNT)


def _own_cause(
    record: Record, lives: Mapping[str, Life], settings: IPReservationSettings, now: datetime
) -> Cause | None:
    if record.ended and now - record.ended >= timedelta(seconds=settings.ip_reserve_time):
        return Cause.AGE
    if may_be_given_back(record, lives.get(record.uid, Life.GONE), settings, now):
        return Cause.GIVEN_BACK
    return None


def _beyond(held: Sequence[Record], count: int) -> list[Record]:
    """The records of the addresses whose holds began first, so that *count* addresses stay."""
    latest = {record.cidr: _began(record) for record in sorted(held, key=_began)}
    oldest_first = sorted(latest, key=lambda cidr: latest[cidr])
    surplus = set(oldest_first[: max(0, len(oldest_first) - count)])
    return [record for record in held if record.cidr in surplus]


def _began(record: Record) -> tuple[datetime, datetime]:
    return record.ended or record.at, record.at


def _change(segment: IPReservation, records: Sequence[Record], causes: Mapping[Record, Cause]) -> Change:
    return Change(
        segment,
        kept=tuple(record for record in records if record not in causes),
        released=tuple((record, causes[record]) for record in records if record in causes),
    )


def life_of(pod: Pod | None) -> Life:
    if pod is None or pod.finished:
        return Life.GONE
    return Life.TERMINATING if pod.terminating else Life.RUNNING
