"""`drawbridge doctor`."""

from __future__ import annotations

import click

from cli.doctor.checks import findings
from cli.doctor.reader import answers_of
from cli.doctor.types import parts_of, sorted_findings
from cli.errors import WRONG
from cli.session import Command, Session, pass_session
from cli.status.assess import status_of
from cli.status.reader import facts_of


@click.command(cls=Command)
@pass_session
def doctor(session: Session) -> None:
    """Find out what is wrong with the installation.

    Runs the checks of docs/how-to/troubleshooting.md. Reserves an IP that no pod has, as the webhook servers do, and
    releases it; writes nothing else. Ends with 1 when something is wrong.
    """
    facts = facts_of(session.cluster)
    answers = answers_of(session.cluster, facts.installed)
    found = sorted_findings(findings(facts, status_of(facts, session.cluster.now()), answers))
    session.output.show(found, parts_of)
    if found.wrong:
        raise SystemExit(WRONG)
