"""Read the nodes, the address claims, the allow-list, and what the leader last knew of the cloud's quotas."""

from __future__ import annotations

from functools import partial

import msgspec

from cli.addresses.announcing import announcing
from cli.addresses.listing import Addresses, listed, with_quotas
from cli.cluster import Cluster
from cli.installed.reader import installed
from cli.installed.types import Lease
from controllers.anycast_ip.claim import SELECTED
from controllers.anycast_ip.entries import Entries, entries_in
from controllers.anycast_ip.quotas import QuotasRead, quotas_in
from kube.errors import KubeError
from kube.resources import CONFIG_MAPS, LEASES
from kube.types import ConfigMap
from settings import LeaderElection
from settings.anycast_ip import AllowList


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
