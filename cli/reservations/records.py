"""What the records of all segments say of each address: functions of values."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from calico.segment import IPReservation, Record
from settings import IPReservationSettings


def release_at(record: Record, settings: IPReservationSettings) -> datetime | None:
    """None while no end of its pod is stored: it exists, has just gone, or never was."""
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


Unmanaged = tuple[str, IPv4Network | IPv6Network]
"""An IPReservation that Drawbridge does not manage, by its name, and what it keeps reserved."""


def unmanaged_entries(reservations: Iterable[IPReservation]) -> list[Unmanaged]:
    return [
        (each.metadata.name, ip_network(entry, strict=False))
        for each in reservations
        if not each.ours
        for entry in each.spec.reserved_cidrs
        if entry not in each.malformed
    ]


def kept_by(cidr: str, unmanaged: Iterable[Unmanaged]) -> str:
    """Which of them keeps *cidr*, an address of ours, reserved when we release it; empty for none."""
    address = ip_address(address_of(cidr))
    return next((name for name, network in unmanaged if address in network), "")


def address_of(cidr: str) -> str:
    return cidr.partition("/")[0]


def _stays(record: Record) -> tuple[bool, datetime]:
    return record.ended is None, record.ended or record.at
