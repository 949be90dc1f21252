"""`drawbridge simulate join`."""

from __future__ import annotations

from typing import Any

import click

from api.anycast_ip import recorded
from api.ingress_daemonset.node_matching import FollowedNode
from cli.addresses import announcing, claims_in
from cli.commands.addresses import address_claims, allow_list, quotas
from cli.commands.explain import ingress_daemonsets_of, snapshot_of
from cli.errors import Failure
from cli.explain.prediction import Objects
from cli.inventory import Inventory
from cli.session import Command, Session, pass_session
from cli.simulate.join import DaemonSet, Join, JoinFacts, NoSuchNode, Supply, join, join_parts
from controllers.anycast_ip.pool import in_line
from kube.resources import NODES, Resource

Raw = dict[str, Any]
DAEMON_SETS = Resource("apps", "v1", "daemonsets")


@click.command("join", cls=Command)
@click.argument("count", metavar="N", type=click.IntRange(min=1))
@click.option("--like", metavar="NODE", default="", help="The new nodes have its labels and taints.")
@pass_session
def join_command(session: Session, count: int, like: str) -> None:
    """Which addresses N more nodes need, for how long they wait, and which pods start there.

    Without --like they are like the newest node that needs an anycast IP.
    """
    found = simulate_join(Inventory(session.cluster), count, like)
    session.output.show(found, join_parts)


def simulate_join(inventory: Inventory, count: int, like: str) -> Join:
    """KubeError; Failure when there is no node to be *like*."""
    facts = JoinFacts(
        count,
        like,
        inventory.list(NODES, FollowedNode),
        inventory.list(DAEMON_SETS, DaemonSet),
        _supply(inventory),
        snapshot_of(inventory, Objects(ingress_daemonsets=ingress_daemonsets_of(inventory, None))),
    )
    try:
        return join(facts)
    except NoSuchNode:
        raise Failure(
            f"there is no node {like}", "name one that new nodes resemble, or leave --like out"
        ) from None


def _supply(inventory: Inventory) -> Supply:
    claims = address_claims(inventory)
    idle = in_line(claim for claim in claims_in(claims) if claim.pooled)
    listed = allow_list(inventory)
    announcements = announcing(listed, inventory.settings.anycast_ip.allow_list, inventory.now())
    waiting = {each.id for each in announcements}
    announced = sum(claim.address not in waiting for claim in idle if claim.address in recorded(listed))
    return Supply(len(claims), len(idle), quotas(inventory), announced)
