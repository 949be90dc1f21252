"""Plan which segments to compact: many small ones, into few large ones of a higher level.

The records are in the new segment before the copies in its sources are dropped, by the rules for copies, and the
sources deleted. A crash between these steps leaves copies, which the next leader drops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from calico.segment import ENTRIES, SIZE, IPReservation, Record, pages

FEW = 16
"""Small segments that are compacted when no new one has come for a while."""
MANY = 100
"""Small segments that are compacted also during a storm: Calico's allocator reads each of them for each pod."""

Outcome = tuple[IPReservation, Sequence[Record]]
"""A segment that is left as it is, and what is known of its records."""


@dataclass(frozen=True)
class Compaction:
    """Create a segment of *level* with *records*, all that is known of those of *sources*."""

    level: int
    records: tuple[Record, ...]
    sources: frozenset[str]


def compact(outcomes: Iterable[Outcome], *, quiet: bool) -> Sequence[Compaction]:
    """None while there are few small segments, or new ones keep coming."""
    small = [(segment, records) for segment, records in outcomes if is_small(segment)]
    if len(small) < (FEW if quiet else MANY):
        return ()
    level = 1 + max(segment.level for segment, _ in small)
    sources = frozenset(segment.metadata.name for segment, _ in small)
    records = {record.key: record for _, held in small for record in held}
    return [Compaction(level, page, sources) for page in pages(records.values(), ENTRIES)]


def is_small(segment: IPReservation) -> bool:
    """Whether it is half full at most, and nothing has to be done or decided by users in it first."""
    return (
        segment.ours
        and 0 < len(segment.records) <= ENTRIES // 2
        and segment.size <= SIZE // 2
        and all(record.uid for record in segment.records)
        and not (segment.malformed or segment.to_be_released)
    )
