"""`drawbridge addresses list`: the nodes, their address claims, the allow-list, and the cloud's quotas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click
from msgspec.structs import replace

from api.anycast_ip import Entries, entries_in
from cli.addresses import Addresses, announcing, listed, parts_of, with_quotas
from cli.inventory import Inventory
from cli.output import timed
from cli.session import Command, Commands, Session, pass_session
from controllers.anycast_ip.claim import SELECTED
from controllers.anycast_ip.inventory import QuotasRead, quotas_in
from kube.errors import KubeError
from kube.resources import CONFIG_MAPS, Selection
from kube.types import ConfigMap


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
    session.output.show(addresses_of(Inventory(session.cluster)), timed(parts_of, session.cluster.now))


def addresses_of(inventory: Inventory) -> Addresses:
    """KubeError, or Failure when Drawbridge is not installed; quotas that cannot be read are left out."""
    settings = inventory.installed.in_force.anycast_ip
    reads: dict[str, Callable[[], Any]] = {
        "nodes": inventory.nodes,
        "claims": partial(address_claims, inventory),
        "quotas": partial(quotas, inventory),
        "allowed": partial(allow_list, inventory),
    }
    found = inventory.cluster.read_all(reads)
    known = with_quotas(listed(found["nodes"], found["claims"], settings), found["quotas"])
    return replace(known, announcing=announcing(found["allowed"], settings.allow_list, inventory.now()))


def address_claims(inventory: Inventory) -> Sequence[ConfigMap]:
    ours = Selection(inventory.namespace, label_selector=SELECTED)
    return inventory.list(CONFIG_MAPS, ConfigMap, ours)


def allow_list(inventory: Inventory) -> Entries:
    """None without a wait, which alone makes it matter here, and where the ConfigMap may not be read."""
    settings = inventory.installed.in_force.anycast_ip.allow_list
    if not settings.announce_before:
        return ()
    try:
        return entries_in(inventory.get(CONFIG_MAPS, settings.config_map, inventory.namespace, ConfigMap))
    except KubeError:
        return ()


def quotas(inventory: Inventory) -> QuotasRead | None:
    """None without an election, before the first read, and where the Lease may not be read."""
    try:
        return quotas_in(inventory.lease().metadata.annotations)
    except KubeError:
        return None
