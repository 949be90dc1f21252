"""`drawbridge addresses list`."""

from __future__ import annotations

import click

from cli.addresses.listing import parts_of
from cli.addresses.reader import addresses_of
from cli.output import timed
from cli.session import Command, Commands, Session, pass_session


@click.group(cls=Commands)
def addresses() -> None:
    """List anycast IPs of nodes."""


@addresses.command("list", cls=Command)
@pass_session
def list_addresses(session: Session) -> None:
    """List the anycast IPs of nodes.

    Nodes that wait for one, and IPs of gone nodes that are being released, come first;
    then idle ones, in the order in which new nodes get them. Below them are those that are
    announced before they are bound, and what is left of the cloud's quotas, as the leader
    last read them.
    """
    value = addresses_of(session.cluster)
    session.output.show(value, timed(parts_of, session.cluster.now))
