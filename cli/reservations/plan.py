"""What to write to release and to hold addresses: functions of values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address

from calico.segment import RELEASE, IPReservation, canonical, laid_open
from cli.errors import Failure
from cli.output import Document
from cli.reservations.records import address_of, by_address, kept_by, release_at, unmanaged_entries
from settings import IPReservationSettings

BY_HAND = "held by hand"
HELD = "held-"
"""How the name of an IPReservation of one address begins that was held by hand: no label of ours, so it stays."""
LIST = "drawbridge reservations list shows all"


class Reservation(Document, frozen=True):
    """*expires_at* is None while no end of its pod is stored, and for one that is held by hand.

    *kept_by* names an IPReservation of others that keeps it reserved after that.
    """

    address: str
    namespace: str
    pod: str
    node: str
    owner: str
    reason: str
    reserved_at: datetime | None
    ended_at: datetime | None
    expires_at: datetime | None
    object: str
    to_be_released: bool = False
    kept_by: str = ""


class Reservations(Document, frozen=True):
    reservations: tuple[Reservation, ...]
    limit: int


@dataclass(frozen=True)
class Annotate:
    """Order the leader to release *entries* of *segment*, besides those that it names already."""

    segment: IPReservation
    entries: Sequence[str]

    @property
    def patch(self) -> dict[str, object]:
        metadata = self.segment.metadata
        named = dict.fromkeys((*self.segment.to_be_released, *self.entries))
        changes = laid_open(metadata, {RELEASE: ",".join(named)})
        return {"metadata": {**changes, "resourceVersion": metadata.resource_version}}


@dataclass(frozen=True)
class Delete:
    """Delete the object that holds an address by hand."""

    reservation: IPReservation


def listed(
    segments: Sequence[IPReservation], settings: IPReservationSettings, namespace: str | None = None
) -> tuple[Reservation, ...]:
    """Those of pods of *namespace*, or all; the next releases first."""
    ours, others = by_address(each for each in segments if each.ours), unmanaged_entries(segments)
    found = [
        Reservation(
            address_of(cidr),
            record.namespace,
            record.pod,
            record.node,
            record.owner,
            record.reason + (" (late)" if record.late else ""),
            record.at,
            record.ended,
            release_at(record, settings),
            segment.metadata.name,
            any(cidr in each.to_be_released.values() for each in segments if each.ours),
            kept_by(cidr, others),
        )
        for cidr, (record, segment) in ours.items()
    ]
    found += [each for segment in segments if not segment.ours for each in _by_hand(segment)]
    wanted = [each for each in found if namespace in (None, each.namespace)]
    return tuple(sorted(wanted, key=_order))


def to_release(segments: Sequence[IPReservation], addresses: Iterable[str]) -> list[Annotate | Delete]:
    """Failure for what is no address, or is not reserved."""
    orders: dict[str, Annotate] = {}
    deletions = []
    ours = by_address(each for each in segments if each.ours)
    for address in addresses:
        cidr = cidr_of(address)
        holds = [each for each in segments if is_held_by_hand(each, cidr)]
        deletions += [Delete(each) for each in holds]
        if cidr in ours:
            segment = ours[cidr][1]
            former = orders.get(segment.metadata.name, Annotate(segment, ()))
            orders[segment.metadata.name] = Annotate(segment, (*former.entries, address_of(cidr)))
        elif not holds:
            raise _not_ours(segments, cidr)
    return [*orders.values(), *deletions]


def to_hold(segments: Sequence[IPReservation], address: str) -> dict[str, object] | None:
    """The IPReservation to create; None when it is there already."""
    cidr = cidr_of(address)
    if any(is_held_by_hand(each, cidr) for each in segments):
        return None
    return {"metadata": {"name": held_name(cidr)}, "spec": {"reservedCIDRs": [cidr]}}


def is_held_by_hand(reservation: IPReservation, cidr: str) -> bool:
    named = reservation.metadata.name == held_name(cidr)
    return named and not reservation.ours and reservation.spec.reserved_cidrs == [cidr]


def held_name(cidr: str) -> str:
    # Written out: an abbreviated IPv6 address may end in a colon, and no name may end in a dash.
    return HELD + ip_address(address_of(cidr)).exploded.replace(".", "-").replace(":", "-")


def cidr_of(address: str) -> str:
    """Failure for what is not one address."""
    cidr = canonical(address)
    if cidr is None:
        raise Failure(f"{address!r} is not an IP address", "write one such as 10.0.0.5")
    return cidr


def _not_ours(segments: Iterable[IPReservation], cidr: str) -> Failure:
    address = address_of(cidr)
    for each in segments:
        if not each.ours and cidr in each.spec.reserved_cidrs:
            name = each.metadata.name
            return Failure(
                f"{address} is reserved by IPReservation {name}, which Drawbridge does not manage",
                f"if you know what it is for: kubectl edit ipreservation {name}",
            )
    return Failure(f"{address} is not reserved", LIST)


def _by_hand(reservation: IPReservation) -> Iterable[Reservation]:
    """Of an unmanaged object; ranges are not for single pods, and are left out."""
    for entry in reservation.spec.reserved_cidrs:
        if cidr := canonical(entry):
            name, created = reservation.metadata.name, reservation.metadata.creation_timestamp
            reason = BY_HAND if is_held_by_hand(reservation, cidr) else "unmanaged"
            yield Reservation(address_of(cidr), "", "", "", "", reason, created, None, None, name)


def _order(found: Reservation) -> tuple[bool, float, str]:
    at = found.expires_at
    return at is None, at.timestamp() if at else 0.0, found.address
