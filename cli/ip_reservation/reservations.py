"""`drawbridge reservations list|release|hold`: which IPs are reserved, for which pods and until when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import NamedTuple

import click

from api.ip_reservation import FINISHED
from calico.pools import Range, range_of, size_of
from calico.reservations import NotServed
from calico.segment import KIND, RELEASE, IPReservation, Record, canonical, laid_open
from cli.errors import Failure, Unreadable
from cli.inventory import Inventory
from cli.output import Cell, Document, Part, Report, Table, age, duration, good, left, moment, warning
from cli.session import Commands, Session, pass_session, watch_option
from controllers.ip_reservation.release_planner import Copy, by_identity, merged
from kube.errors import AlreadyExists, Conflict, NotFound
from kube.types import after
from settings import IPReservationSettings

BY_HAND = "held by hand"
HELD = "held-"
"""How the name of an IPReservation of one address begins that was held by hand: no label of ours, so it stays."""
LIST = "drawbridge reservations list shows all"
NOT_ENDED = "no end stored"
"""Of its pod: it exists, has gone within the last minute, or never was, and then the leader drops the reservation."""
CHANGED = Failure("a reservation was changed in the meantime; nothing more was changed by you", "repeat it")
COLUMNS = ("IP", "POD", "REASON", "RESERVED", "RELEASE", "EXPIRES AT", "NODE", "OWNER", "OBJECT")


class Stored(NamedTuple):
    """A record as the leader takes it, and what segments have of it, the greatest last."""

    record: Record
    copies: Sequence[Copy]


def due(at: datetime, now: datetime) -> str:
    return f"in {left(at, now)}" if at > now else "now"


def release_at(record: Record, settings: IPReservationSettings) -> datetime | None:
    """None while no end of its pod is stored: it exists, has just gone, or never was."""
    return after(record.ended, settings.duration) if record.ended else None


def stored_in(segments: Iterable[IPReservation]) -> Iterator[Stored]:
    """Of those that are ours."""
    for copies in by_identity([each for each in segments if each.ours]).values():
        yield Stored(merged(copies), copies)


def by_address(segments: Iterable[IPReservation]) -> dict[str, tuple[Record, IPReservation]]:
    """By CIDR: the record for which it is reserved longest, and its segment."""

    def stays(stored: Stored) -> tuple[bool, datetime]:
        ended = stored.record.ended
        return ended is None, ended or stored.record.at

    longest_last = sorted(stored_in(segments), key=stays)
    return {record.cidr: (record, copies[-1].segment) for record, copies in longest_last}


def counted(segments: Iterable[IPReservation]) -> int:
    """Addresses whose time runs, but for those of pods that finished."""
    records = (record for record, _ in stored_in(segments))
    return len({each.cidr for each in records if each.ended and each.reason != FINISHED})


class Unmanaged:
    """What IPReservations keep reserved that Drawbridge does not manage."""

    def __init__(self, reservations: Iterable[IPReservation]) -> None:
        self._names: dict[Range, list[str]] = {}
        for each in reservations:
            for entry in () if each.ours else each.spec.reserved_cidrs:
                if entry not in each.malformed:
                    self._names.setdefault(range_of(entry), []).append(each.metadata.name)
        self._sizes = {size_of(each) for each in self._names}

    def names(self, cidr: str) -> Sequence[str]:
        """Of those that keep *cidr*, an address of ours, reserved when we release it."""
        if not self._names:  # as nearly everywhere: thousands of addresses take a while to parse
            return ()
        version, first, _ = range_of(cidr)
        starts = ((first - first % size, size) for size in self._sizes)
        found = (self._names.get((version, start, start + size), ()) for start, size in starts)
        return sorted({name for names in found for name in names})

    def name(self, cidr: str) -> str:
        """Of the first; empty for none."""
        return next(iter(self.names(cidr)), "")


def address_of(cidr: str) -> str:
    return cidr.partition("/")[0]


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
        rows = [
            (
                each.address,
                f"{each.namespace}/{each.pod}" if each.pod else "",
                each.reason,
                age(each.reserved_at, now),
                _release(each, now),
                moment(each.expires_at),
                each.node,
                each.owner,
                each.object,
            )
            for each in self.reservations
        ]
        yield Table(COLUMNS, rows, empty="no IP is reserved", wide=4)


def _release(each: Reservation, now: datetime) -> Cell:
    if each.to_be_released:
        return warning("ordered" if each.ended_at else "ordered, when its pod is gone")
    if each.kept_by:
        is_held = each.kept_by == held_name(each.address)
        return "then held by hand" if is_held else f"kept by {each.kept_by}"
    if each.expires_at:
        return due(each.expires_at, now) if each.expires_at > now else good("now")
    return "by hand" if each.reason == BY_HAND or not each.pod else NOT_ENDED


def listed(
    segments: Sequence[IPReservation], settings: IPReservationSettings, namespace: str | None = None
) -> tuple[Reservation, ...]:
    """Those of pods of *namespace*, or all; the next releases first."""
    ours, others = by_address(segments), Unmanaged(segments)
    ordered = {cidr for each in segments if each.ours for cidr in each.to_be_released.values()}
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
            cidr in ordered,
            others.name(cidr),
        )
        for cidr, (record, segment) in ours.items()
    ]
    # Of others; ranges are not for single pods, and are left out.
    for segment in segments:
        for entry in segment.spec.reserved_cidrs if not segment.ours else ():
            if cidr := canonical(entry):
                name, created = segment.metadata.name, segment.metadata.creation_timestamp
                reason = BY_HAND if is_held_by_hand(segment, cidr) else "unmanaged"
                address = address_of(cidr)
                found.append(Reservation(address, "", "", "", "", reason, created, None, None, name))
    wanted = [each for each in found if namespace in (None, each.namespace)]
    last = datetime.max.replace(tzinfo=UTC)
    return tuple(sorted(wanted, key=lambda each: (each.expires_at or last, each.address)))


def to_release(
    segments: Sequence[IPReservation], addresses: Iterable[str]
) -> tuple[list[tuple[IPReservation, list[Record]]], list[IPReservation]]:
    """Segments, each with the records that the leader is to release of it; and objects that hold an IP by hand.

    Failure for what is no address, or is not reserved.
    """
    orders: dict[str, tuple[IPReservation, list[Record]]] = {}
    held: list[IPReservation] = []
    ours = [*stored_in(segments)]
    for text in addresses:
        cidr = cidr_of(text)
        address, holds = address_of(cidr), [each for each in segments if is_held_by_hand(each, cidr)]
        held += holds
        # One for each pod that had it.
        found = [(record, copies[-1].segment) for record, copies in ours if record.cidr == cidr]
        for record, segment in found:
            orders.setdefault(segment.metadata.name, (segment, []))[1].append(record)
        if not (found or holds):
            if not (name := Unmanaged(segments).name(cidr)):
                raise Failure(f"{address} is not reserved", LIST)
            raise Failure(
                f"{address} is reserved by IPReservation {name}, which Drawbridge does not manage",
                f"if you know what it is for: kubectl edit ipreservation {name}",
            )
    return [*orders.values()], held


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


@click.group(cls=Commands)
def reservations() -> None:
    """List, release and hold reserved IPs."""


@reservations.command("list")
@watch_option
@pass_session
def list_reservations(session: Session, watch: bool) -> None:
    """List reserved IPs, the next release first.

    Of the whole cluster or, with -n, of one namespace's pods.
    """

    def read() -> Reservations:
        inventory = Inventory(session.cluster)
        segments, settings = segments_of(inventory), settings_in_force(inventory)
        shown = listed(segments, settings, session.options.namespace or None)
        return Reservations(shown, settings.max_count)

    session.follow(read, watch)


@reservations.command()
@click.argument("addresses", metavar="IP...", nargs=-1, required=True)
@pass_session
def release(session: Session, addresses: tuple[str, ...]) -> None:
    """Release IPs early, so that Calico may assign them again.

    The leader releases them within ipReservation.advanced.releasePeriod, or as soon as the pod that has the IP is
    gone.
    """
    inventory = Inventory(session.cluster)
    segments, settings = segments_of(inventory), settings_of(inventory)
    orders, held = to_release(segments, addresses)
    named, now = {address_of(cidr_of(each)) for each in addresses}, session.cluster.now()
    owners = []
    for each in listed(segments, settings):
        gone = f"gone for {age(each.ended_at, now)}" if each.ended_at else "whose end is not stored yet"
        owner = f"pod {each.namespace}/{each.pod}, {gone}" if each.pod else each.reason
        if each.address in named:
            owners.append(f"  {each.address}: {owner}")
    session.confirm("Calico may then assign these IPs to any pod:", *owners, "Release?")
    client, resource, say = inventory.client, inventory.reservations.resource(), session.output.say
    try:
        for segment, records in orders:
            metadata, entries = segment.metadata, [address_of(record.cidr) for record in records]
            order = ",".join(dict.fromkeys((*segment.to_be_released, *entries)))
            changes = {**laid_open(metadata, {RELEASE: order}), "resourceVersion": metadata.resource_version}
            client.patch(resource, metadata.name, {"metadata": changes})
        others = Unmanaged(each for each in segments if not each.metadata.name.startswith(HELD))
        for cidr, (record, _) in by_address(segments).items():
            if address_of(cidr) in named:
                kept, when = others.name(cidr), _when(record, settings)
                still = f"; {kept}, which Drawbridge does not manage, keeps it reserved" if kept else ""
                say(f"{address_of(cidr)}: the leader releases it {when}{still}")
        for hold in held:
            client.delete(resource, hold.metadata.name, preconditions={"uid": hold.metadata.uid or None})
            say(f"{address_of(hold.spec.reserved_cidrs[0])}: no longer held by hand")
    except (Conflict, NotFound):
        raise CHANGED from None


def _when(record: Record, settings: IPReservationSettings) -> str:
    if record.uid and not record.ended:
        return f"when pod {record.namespace}/{record.pod} is gone"
    promised = ", or when the pod that was promised it has an IP"
    is_promised = record.owner_uid and settings.same_address.enabled
    return f"within {duration(settings.release_period)}" + (promised if is_promised else "")


@reservations.command("hold")
@click.argument("address", metavar="IP")
@pass_session
def hold_ip(session: Session, address: str) -> None:
    """Hold an IP until you release it.

    ipReservation.duration and maxCount do not apply. Creates an IPReservation that Drawbridge does not manage. A pod
    that has the IP keeps it.
    """
    inventory = Inventory(session.cluster)
    segments, cidr = segments_of(inventory), cidr_of(address)
    if any(is_held_by_hand(each, cidr) for each in segments):
        session.output.say(f"{address}: held by hand already; nothing was changed")
        return
    if (name := held_name(cidr)) in {each.metadata.name for each in segments}:
        raise Failure(
            f"IPReservation {name} is there, and not for {address} alone",
            f"kubectl edit ipreservation {name}",
        )
    session.confirm(f"Hold {address}, so that Calico assigns it to no new pod until you release it?")
    resource = inventory.reservations.resource()
    kind = {"apiVersion": resource.api_version, "kind": KIND}
    body = {"metadata": {"name": held_name(cidr)}, "spec": {"reservedCIDRs": [cidr]}}
    try:
        inventory.client.create(resource, kind | body)
    except AlreadyExists:
        raise CHANGED from None
    session.output.say(f"{address}: held by hand; drawbridge reservations release {address} ends that")


def settings_of(inventory: Inventory) -> IPReservationSettings:
    """KubeError where they may not be read: the defaults would show other times."""
    if inventory.installed.unread:
        raise inventory.installed.unread
    return inventory.installed.settings_or_defaults.ip_reservation


def settings_in_force(inventory: Inventory) -> IPReservationSettings:
    """As `settings_of`; Failure for those that are refused, too: the programs have others than the defaults."""
    settings_of(inventory)
    return inventory.settings.ip_reservation


def segments_of(inventory: Inventory) -> Sequence[IPReservation]:
    """KubeError; Failure when Drawbridge or Calico is not installed."""
    try:
        _ = inventory.installed
        return inventory.segments()
    except NotServed as error:
        raise Unreadable(str(error), "kubectl api-resources --api-group=crd.projectcalico.org") from error


def segments_if_any(inventory: Inventory) -> Sequence[IPReservation]:
    """Empty where Calico is not installed; Failure where the settings cannot be read."""
    _ = inventory.settings
    try:
        return inventory.segments()
    except (NotServed, NotFound):
        return ()
