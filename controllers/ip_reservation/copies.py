"""Copies: records of one pod's address in several segments, as compaction and repeated requests leave them.

A copy is dropped only when a greater one says as much. The order is total, and of what never changes, so two leaders
with different views never drop each other's copies: the greatest one stays. What all copies say together decides
when the address is released, and is what a compacted segment says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import replace

from calico.segment import IPReservation, Record

Place = tuple[int, datetime, str]
Identity = tuple[str, str]


@dataclass(frozen=True)
class Copy:
    """*record* as *segment* has it."""

    segment: IPReservation
    record: Record

    @property
    def rank(self) -> tuple[bool, Place]:
        return not self.record.late, place_of(self.segment)

    def is_covered_by(self, other: Copy, *, goes: bool) -> bool:
        """Whether *other* is greater and says as much. Once a pod *goes*, its last request is of no matter."""
        if other.rank <= self.rank:
            return False
        ended, others = self.record.ended, other.record.ended
        asked_as_late = goes or other.record.last_asked >= self.record.last_asked
        return asked_as_late and (ended is None or (others is not None and others <= ended))


def identity_of(segment: IPReservation, record: Record) -> Identity:
    """What its copies have in common. A record of no pod is no other one's copy."""
    return record.key, "" if record.uid else segment.metadata.name


def place_of(segment: IPReservation) -> Place:
    """In the order of segments."""
    created = segment.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)
    return segment.level, created, segment.metadata.name


def by_identity(segments: Sequence[IPReservation]) -> Mapping[Identity, Sequence[Copy]]:
    """All copies, the greatest one last."""
    found: dict[Identity, list[Copy]] = {}
    for segment in segments:
        for record in segment.records:
            found.setdefault(identity_of(segment, record), []).append(Copy(segment, record))
    for copies in found.values():
        if len(copies) > 1:
            copies.sort(key=lambda copy: copy.rank)
    return found


def merged(copies: Sequence[Copy]) -> Record:
    """The first reservation, the last request and the first end; late only if all are."""
    greatest = copies[-1].record
    if len(copies) == 1:
        return greatest
    records = [copy.record for copy in copies]
    at, asked = min(each.at for each in records), max(each.last_asked for each in records)
    return replace(
        greatest,
        at=at,
        asked=asked if asked > at else None,
        ended=min((each.ended for each in records if each.ended), default=None),
    )
