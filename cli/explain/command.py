"""`drawbridge explain`."""

from __future__ import annotations

from ipaddress import ip_address

import click

from cli.errors import Failure
from cli.explain import ingress_daemonset as of_ingress_daemonset
from cli.explain import ip as of_ip
from cli.explain import node as of_node
from cli.explain import pod as of_pod
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
    facts = Reader(session.cluster).pod(session.namespace, name)
    session.output.show(of_pod.explain(facts), of_pod.parts)


@explain.command("ip")
@click.argument("address")
@pass_session
def ip(session: Session, address: str) -> None:
    """Who has an IP, whether it is reserved, why, and until when."""
    try:
        canonical = str(ip_address(address))
    except ValueError:
        raise Failure(f"{address!r} is no IP address", "write for example 10.0.0.5") from None
    session.output.show(of_ip.explain(Reader(session.cluster).ip(canonical)), of_ip.parts)


@explain.command("node")
@click.argument("name")
@pass_session
def node(session: Session, name: str) -> None:
    """Whether a node needs an anycast IP and is open, and what admission does to a change of it."""
    facts = Reader(session.cluster).node(name)
    session.output.show(of_node.explain(facts), of_node.parts)


@explain.command("ingressdaemonset")
@click.argument("name")
@pass_session
def ingress_daemonset(session: Session, name: str) -> None:
    """Whether today's rules accept it, which nodes it matches, and what evictions wait for."""
    facts = Reader(session.cluster).ingress_daemonset(session.namespace, name)
    session.output.show(of_ingress_daemonset.explain(facts), of_ingress_daemonset.parts)
