"""`drawbridge addresses list`."""

from __future__ import annotations

from functools import partial

import click

from cli.addresses.listing import Addresses, listed, parts_of
from cli.cluster import Cluster
from cli.installed.reader import installed
from cli.output import timed
from cli.session import Command, Commands, Session, pass_session
from controllers.anycast_ip.claim import SELECTED
from kube.resources import CONFIG_MAPS
from kube.types import ConfigMap


@click.group(cls=Commands)
def addresses() -> None:
    """List anycast IPs of nodes."""


@addresses.command("list", cls=Command)
@pass_session
def list_addresses(session: Session) -> None:
    """List the anycast IPs of nodes.

    Nodes that wait for one, and IPs of gone nodes that are being released, come first;
    then idle ones, in the order in which new nodes get them.
    """
    value = _read(session.cluster)
    session.output.show(value, timed(parts_of))


def _read(cluster: Cluster) -> Addresses:
    ours = installed(cluster)
    found = cluster.read_all(
        {
            "nodes": cluster.nodes,
            "claims": partial(
                cluster.client.list, CONFIG_MAPS, ours.namespace, type=ConfigMap, label_selector=SELECTED
            ),
        }
    )
    settings = ours.in_force.anycast_ip
    return Addresses(listed(found["nodes"], found["claims"].items, settings))
