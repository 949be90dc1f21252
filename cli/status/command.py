"""`drawbridge status`."""

from __future__ import annotations

import click

from cli.errors import WRONG
from cli.output import timed
from cli.session import Command, Session, pass_session
from cli.status.assess import status_of
from cli.status.reader import facts_of
from cli.status.types import Status
from cli.status.view import parts_of


@click.command(cls=Command)
@click.option("-w", "--watch", is_flag=True, help="Show it again whenever it changes, until Ctrl-C.")
@pass_session
def status(session: Session, watch: bool) -> None:
    """All features at a glance; what is wrong comes first.

    Ends with 1 when something is wrong.
    """

    def read() -> Status:
        return status_of(facts_of(session.cluster), session.cluster.now())

    if session.follow(read, timed(parts_of, session.cluster.now), watch).problems:
        raise SystemExit(WRONG)
