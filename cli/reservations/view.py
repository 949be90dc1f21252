"""Reservations as people see them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from cli.output import Cell, Part, Table, age, duration, good, moment, warning
from cli.reservations.plan import BY_HAND, Annotate, Delete, Reservation, Reservations
from cli.reservations.records import address_of

NOT_ENDED = "no end stored"
"""Of its pod: it exists, has gone within the last minute, or never was, and then the leader drops the reservation."""
COLUMNS = ("IP", "POD", "REASON", "RESERVED", "RELEASE", "EXPIRES AT", "NODE", "OWNER", "OBJECT")


def parts_of(found: Reservations, now: datetime) -> Iterator[Part]:
    rows = [_row(each, now) for each in found.reservations]
    yield Table(COLUMNS, rows, empty="no IP is reserved", wide=4)


def question(found: Sequence[Reservation], now: datetime) -> list[str]:
    """Before a release: whose addresses these are."""
    lines = [f"  {each.address}: {_owner(each, now)}" for each in found]
    return ["Calico may then assign these IPs to any pod:", *lines, "Release?"]


def done(action: Annotate | Delete, found: Sequence[Reservation], seconds: float) -> Iterator[str]:
    if isinstance(action, Delete):
        cidr = action.reservation.spec.reserved_cidrs[0]
        yield f"{address_of(cidr)}: no longer held by hand"
        return
    ended = {each.address: each.ended_at for each in found}
    pods = {each.address: f"{each.namespace}/{each.pod}" for each in found}
    for address in action.entries:
        when = f"within {duration(seconds)}" if ended.get(address) else f"when pod {pods[address]} is gone"
        yield f"{address}: the leader releases it {when}"


def _owner(found: Reservation, now: datetime) -> str:
    if not found.pod:
        return found.reason
    gone = f"gone for {age(found.ended_at, now)}" if found.ended_at else "whose end is not stored yet"
    return f"pod {found.namespace}/{found.pod}, {gone}"


def _row(each: Reservation, now: datetime) -> list[Cell]:
    pod = f"{each.namespace}/{each.pod}" if each.pod else ""
    return [
        each.address,
        pod,
        each.reason,
        age(each.reserved_at, now),
        _release(each, now),
        moment(each.expires_at),
        each.node,
        each.owner,
        each.object,
    ]


def _release(each: Reservation, now: datetime) -> Cell:
    if each.to_be_released:
        return warning("ordered" if each.ended_at else "ordered, when its pod is gone")
    if each.kept_by:
        return f"kept by {each.kept_by}"
    if each.expires_at:
        left = (each.expires_at - now).total_seconds()
        return f"in {duration(left)}" if left > 0 else good("now")
    return "by hand" if each.reason == BY_HAND or not each.pod else NOT_ENDED
