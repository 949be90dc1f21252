"""`drawbridge reservations list|release|hold`."""

from __future__ import annotations

import click

from calico.reservations import NotServed
from calico.segment import KIND
from cli.errors import Failure, Unreadable
from cli.inventory import Inventory
from cli.output import timed
from cli.reservations import (
    Annotate,
    Delete,
    Found,
    Reservations,
    done,
    listed,
    parts_of,
    question,
    to_hold,
    to_release,
)
from cli.session import Command, Commands, Session, pass_session
from kube.client import Client, Resource
from kube.errors import AlreadyExists, Conflict, NotFound

CHANGED = Failure("a reservation was changed in the meantime; nothing was changed by you", "repeat it")


@click.group(cls=Commands)
def reservations() -> None:
    """List, release and hold reserved IPs."""


@reservations.command("list", cls=Command)
@pass_session
def list_reservations(session: Session) -> None:
    """List reserved IPs, the next release first.

    All of the cluster, or with -n those of one namespace's pods.
    """
    found = read(Inventory(session.cluster))
    shown = listed(found.segments, found.settings, session.options.namespace)
    value = Reservations(shown, found.settings.ip_reserve_max_count)
    session.output.show(value, timed(parts_of, session.cluster.now))


@reservations.command(cls=Command)
@click.argument("addresses", metavar="IP...", nargs=-1, required=True)
@pass_session
def release(session: Session, addresses: tuple[str, ...]) -> None:
    """Release IPs before their time.

    Calico may assign them again. The leader does it within ipReleasePeriod, or, if a pod still has an IP, when that
    pod is gone.
    """
    found = read(Inventory(session.cluster))
    actions = to_release(found.segments, addresses)
    named = {each.partition("/")[0] for each in addresses}
    known = [each for each in listed(found.segments, found.settings) if each.address in named]
    session.confirm(*question(known, session.cluster.now()))
    for action in actions:
        write(session.cluster.client, found.resource, action)
        for line in done(action, known, found.settings.ip_release_period):
            session.output.say(line)


@reservations.command(cls=Command)
@click.argument("address", metavar="IP")
@pass_session
def hold(session: Session, address: str) -> None:
    """Hold an IP until it is released by hand.

    ipReserveTime and ipReserveMaxCount do not apply. It creates an IPReservation that Drawbridge does not manage. A
    pod that has the IP keeps it.
    """
    found = read(Inventory(session.cluster))
    body = to_hold(found.segments, address)
    if body is None:
        session.output.say(f"{address}: held by hand already; nothing was changed")
        return
    session.confirm(f"Hold {address}, so that Calico assigns it to no new pod until you release it?")
    create(session.cluster.client, found.resource, body)
    session.output.say(f"{address}: held by hand; drawbridge reservations release {address} ends that")


def read(inventory: Inventory) -> Found:
    """KubeError; Failure when Drawbridge or Calico is not installed."""
    try:
        settings = inventory.installed.in_force.ip_reservation
        return Found(inventory.reservations.resource(), inventory.segments(), settings)
    except NotServed as error:
        raise Unreadable(str(error), "kubectl api-resources --api-group=crd.projectcalico.org") from error


def write(client: Client, resource: Resource, action: Annotate | Delete) -> None:
    """On the object as it was read."""
    try:
        match action:
            case Annotate(segment):
                client.patch(resource, segment.metadata.name, action.patch)
            case Delete(reservation):
                metadata = reservation.metadata
                client.delete(resource, metadata.name, preconditions={"uid": metadata.uid or None})
    except (Conflict, NotFound):
        raise CHANGED from None


def create(client: Client, resource: Resource, body: dict[str, object]) -> None:
    try:
        client.create(resource, {"apiVersion": resource.api_version, "kind": KIND, **body})
    except AlreadyExists:
        raise CHANGED from None
