"""What the records of all segments say of each address: functions of values."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from calico.segment import IPReservation, Record
from settings import IPReservationSettings


def release_at(record: Record, settings: IPReservationSettings) -> datetime | None:
    """None while its pod exists."""
    return record.ended + timedelta(seconds=settings.ip_reserve_time) if record.ended else None


def by_address(segments: Iterable[IPReservation]) -> dict[str, tuple[Record, IPReservation]]:
    """By CIDR: the record for which it is reserved longest, and its segment."""
    found: dict[str, tuple[Record, IPReservation]] = {}
    for segment in segments:
        for record in segment.records:
            held = found.get(record.cidr)
            if held is None or _stays(record) > _stays(held[0]):
                found[record.cidr] = record, segment
    return found


def address_of(cidr: str) -> str:
    return cidr.partition("/")[0]


def _stays(record: Record) -> tuple[bool, datetime]:
    return record.ended is None, record.ended or record.at
