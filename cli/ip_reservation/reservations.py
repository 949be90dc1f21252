"""`drawbridge reservations list|release|hold`: which IPs are reserved, for which pods and until when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

import click

from calico.reservations import NotServed
from calico.segment import KIND, RELEASE, IPReservation, Record, canonical, laid_open
from cli.errors import Failure, Unreadable
from cli.inventory import Inventory
from cli.output import Cell, Document, Part, Report, Table, age, duration, good, left, moment, warning
from cli.session import Commands, Session, pass_session
from kube.errors import AlreadyExists, Conflict, NotFound
from settings import IPReservationSettings

Unmanaged = tuple[str, IPv4Network | IPv6Network]
"""An IPReservation that Drawbridge does not manage, by its name, and what it keeps reserved."""
BY_HAND = "held by hand"
HELD = "held-"
"""How the name of an IPReservation of one address begins that was held by hand: no label of ours, so it stays."""
LIST = "drawbridge reservations list shows all"
NOT_ENDED = "no end stored"
"""Of its pod: it exists, has gone within the last minute, or never was, and then the leader drops the reservation."""
CHANGED = Failure("a reservation was changed in the meantime; nothing was changed by you", "repeat it")
COLUMNS = ("IP", "POD", "REASON", "RESERVED", "RELEASE", "EXPIRES AT", "NODE", "OWNER", "OBJECT")


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


class Reservations(Report, frozen=True):
    reservations: tuple[Reservation, ...]
    limit: int

    def parts(self, now: datetime) -> Iterator[Part]:
        rows = [_row(each, now) for each in self.reservations]
        yield Table(COLUMNS, rows, empty="no IP is reserved", wide=4)


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
        return f"in {left(each.expires_at, now)}" if each.expires_at > now else good("now")
    return "by hand" if each.reason == BY_HAND or not each.pod else NOT_ENDED


@click.group(cls=Commands)
def reservations() -> None:
    """List, release and hold reserved IPs."""


@reservations.command("list")
@pass_session
def list_reservations(session: Session) -> None:
    """List reserved IPs, the next release first.

    All of the cluster, or with -n those of one namespace's pods.
    """
    inventory = Inventory(session.cluster)
    segments, settings = segments_of(inventory), settings_of(inventory)
    shown = listed(segments, settings, session.options.namespace)
    session.show(Reservations(shown, settings.ip_reserve_max_count))


@reservations.command()
@click.argument("addresses", metavar="IP...", nargs=-1, required=True)
@pass_session
def release(session: Session, addresses: tuple[str, ...]) -> None:
    """Release IPs before their time.

    Calico may assign them again. The leader does it within ipReleasePeriod, or, if a pod still has an IP, when that
    pod is gone.
    """
    inventory = Inventory(session.cluster)
    segments, settings = segments_of(inventory), settings_of(inventory)
    actions = to_release(segments, addresses)
    named = {each.partition("/")[0] for each in addresses}
    known = [each for each in listed(segments, settings) if each.address in named]
    session.confirm(*question(known, session.cluster.now()))
    for action in actions:
        _write(inventory, action)
        for line in done(action, known, settings.ip_release_period):
            session.output.say(line)


@reservations.command()
@click.argument("address", metavar="IP")
@pass_session
def hold(session: Session, address: str) -> None:
    """Hold an IP until it is released by hand.

    ipReserveTime and ipReserveMaxCount do not apply. It creates an IPReservation that Drawbridge does not manage. A
    pod that has the IP keeps it.
    """
    inventory = Inventory(session.cluster)
    body = to_hold(segments_of(inventory), address)
    if body is None:
        session.output.say(f"{address}: held by hand already; nothing was changed")
        return
    session.confirm(f"Hold {address}, so that Calico assigns it to no new pod until you release it?")
    resource = inventory.reservations.resource()
    try:
        inventory.client.create(resource, {"apiVersion": resource.api_version, "kind": KIND, **body})
    except AlreadyExists:
        raise CHANGED from None
    session.output.say(f"{address}: held by hand; drawbridge reservations release {address} ends that")


def settings_of(inventory: Inventory) -> IPReservationSettings:
    return inventory.installed.in_force.ip_reservation


def segments_of(inventory: Inventory) -> Sequence[IPReservation]:
    """KubeError; Failure when Drawbridge or Calico is not installed."""
    try:
        _ = inventory.installed
        return inventory.segments()
    except NotServed as error:
        raise Unreadable(str(error), "kubectl api-resources --api-group=crd.projectcalico.org") from error


def segments_if_any(inventory: Inventory) -> Sequence[IPReservation]:
    """None where Calico is not installed; Failure where the settings cannot be read."""
    _ = inventory.settings
    try:
        return inventory.segments()
    except (NotServed, NotFound):
        return ()


def _write(inventory: Inventory, action: Annotate | Delete) -> None:
    """On the object as it was read."""
    client, resource = inventory.client, inventory.reservations.resource()
    try:
        match action:
            case Annotate(segment):
                client.patch(resource, segment.metadata.name, action.patch)
            case Delete(reservation):
                metadata = reservation.metadata
                client.delete(resource, metadata.name, preconditions={"uid": metadata.uid or None})
    except (Conflict, NotFound):
        raise CHANGED from None


def records_of(segments: Iterable[IPReservation]) -> Sequence[Record]:
    return [record for segment in segments if segment.ours for record in segment.records]
