"""`drawbridge elasticity list|return`."""

from __future__ import annotations

import click

from cli.elasticity.placements import Placement, Placements, listed, parts_of, to_return
from cli.elasticity.reader import pods_and_super_nodes
from cli.errors import WRONG
from cli.output import timed
from cli.session import Command, Commands, Session, pass_session
from kube.errors import Conflict, NotFound, TooManyRequests


@click.group(cls=Commands)
def elasticity() -> None:
    """See where pods are placed, and return them."""


@elasticity.command("list", cls=Command)
@pass_session
def list_placements(session: Session) -> None:
    """List placed and waiting pods, with the reason."""
    pods, super_nodes = pods_and_super_nodes(session.cluster, session.scope)
    value = Placements(listed(pods, super_nodes))
    session.output.show(value, timed(parts_of, session.cluster.now))


@elasticity.command("return", cls=Command)
@click.argument("pods", metavar="[POD...]", nargs=-1)
@pass_session
def return_pods(session: Session, pods: tuple[str, ...]) -> None:
    """Evict pods from super nodes.

    Their replacements run on local nodes if these have room now. Without names, all pods of the namespace are
    evicted that run there because local nodes were full. Disruption budgets are respected.
    """
    found, super_nodes = pods_and_super_nodes(session.cluster, session.namespace)
    chosen = to_return(found, super_nodes, pods)
    if not chosen:
        session.output.say(f"no pod of namespace {session.namespace} is to return; nothing was changed")
        return
    names = (f"  {each.pod} on {each.node}" for each in chosen)
    session.confirm(f"Pods of namespace {session.namespace} to evict:", *names, "Evict?")
    evicted = [_evict(session, each) for each in chosen]
    if not all(evicted):
        raise SystemExit(WRONG)


def _evict(session: Session, chosen: Placement) -> bool:
    try:
        session.cluster.client.evict(chosen.pod, chosen.namespace, preconditions={"uid": chosen.uid})
    except TooManyRequests as error:
        session.output.say(f"{chosen.pod}: not evicted: {error.message}")
        return False
    except (NotFound, Conflict):
        session.output.say(f"{chosen.pod}: has gone in the meantime")
        return True
    session.output.say(f"{chosen.pod}: evicted from {chosen.node}")
    return True
