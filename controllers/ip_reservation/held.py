"""What is held for which pod, as a key of indexes."""

from __future__ import annotations

from collections.abc import Iterable

from calico.segment import IPReservation, Record

Held = str
"""An address with the pod for which it is held."""


def held_by(record: Record) -> Held:
    return f"{record.cidr} {record.uid}"


def held_in(segment: IPReservation) -> Iterable[Held]:
    return map(held_by, segment.records) if segment.ours else ()
