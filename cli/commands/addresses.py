"""`drawbridge addresses list`."""

from __future__ import annotations

from functools import partial

import click
import msgspec

from cli.addresses import Addresses, announcing, listed, parts_of, with_quotas
from cli.cluster import Cluster
from cli.installation import Lease
from cli.inventory import installed
from cli.output import timed
from cli.session import Command, Commands, Session, pass_session
from controllers.anycast_ip.claim import SELECTED
from controllers.anycast_ip.entries import Entries, entries_in
from controllers.anycast_ip.quotas import QuotasRead, quotas_in
from kube.errors import KubeError
from kube.resources import CONFIG_MAPS, LEASES
from kube.types import ConfigMap
from settings import LeaderElection
from settings.anycast_ip import AllowList


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


def addresses_of(cluster: Cluster) -> Addresses:
    """KubeError, or Failure when Drawbridge is not installed; quotas that cannot be read are left out."""
    ours = installed(cluster)
    claims = partial(
        cluster.client.list, CONFIG_MAPS, ours.namespace, type=ConfigMap, label_selector=SELECTED
    )
    election = ours.in_force.leader_election
    quotas = partial(read_quotas, cluster, election)
    settings = ours.in_force.anycast_ip
    allowed = partial(read_allow_list, cluster, ours.namespace, settings.allow_list)
    found = cluster.read_all({"nodes": cluster.nodes, "claims": claims, "quotas": quotas, "allowed": allowed})
    addresses = with_quotas(listed(found["nodes"], found["claims"].items, settings), found["quotas"])
    waiting = announcing(found["allowed"], settings.allow_list, cluster.now())
    return msgspec.structs.replace(addresses, announcing=waiting)


def read_allow_list(cluster: Cluster, namespace: str, settings: AllowList) -> Entries:
    """None without a wait, which alone makes it matter here, and where the ConfigMap may not be read."""
    if not settings.announce_before:
        return ()
    try:
        return entries_in(cluster.client.get(CONFIG_MAPS, settings.config_map, namespace, type=ConfigMap))
    except KubeError:
        return ()


def read_quotas(cluster: Cluster, election: LeaderElection) -> QuotasRead | None:
    """None without an election, before the first read, and where the Lease may not be read."""
    name, namespace = election.resource_name, election.resource_namespace
    try:
        lease = cluster.client.get(LEASES, name, namespace, type=Lease)
    except KubeError:
        return None
    return quotas_in(lease.metadata.annotations)
