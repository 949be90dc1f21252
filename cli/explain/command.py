"""`drawbridge explain`."""

from __future__ import annotations

import click

from cli.explain.kinds import KINDS
from cli.explain.reader import Reader
from cli.session import Commands, Session, pass_session


@click.group(cls=Commands)
def explain() -> None:
    """Why an object is treated as it is, and what would happen to it now. Nothing is written."""


@explain.command("pod")
@click.argument("name")
@pass_session
def pod(session: Session, name: str) -> None:
    """Which webhooks concern a pod, what its deletion, eviction or creation would do, and why."""
    _show(session, "pod", name)


@explain.command("ip")
@click.argument("address")
@pass_session
def ip(session: Session, address: str) -> None:
    """Who has an IP, and had it before, whether it is reserved, why, and until when."""
    _show(session, "ip", address)


@explain.command("node")
@click.argument("name")
@pass_session
def node(session: Session, name: str) -> None:
    """Whether a node needs an anycast IP and is open, and what admission does to a change of it."""
    _show(session, "node", name)


@explain.command("ingressdaemonset")
@click.argument("name")
@pass_session
def ingress_daemonset(session: Session, name: str) -> None:
    """Whether today's rules accept it, which nodes it matches, and what evictions wait for."""
    _show(session, "ingressdaemonset", name)


def _show(session: Session, kind: str, name: str) -> None:
    explained = KINDS[kind]
    facts = explained.read(Reader(session.cluster), session.namespace, name)
    session.output.show(explained.explain(facts), explained.parts)
