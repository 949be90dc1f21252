"""Read the nodes, the address claims, and what the leader last knew of the cloud's quotas."""

from __future__ import annotations

from functools import partial

from cli.addresses.listing import Addresses, listed, with_quotas
from cli.cluster import Cluster
from cli.installed.reader import installed
from cli.installed.types import Lease
from controllers.anycast_ip.claim import SELECTED
from controllers.anycast_ip.quotas import QuotasRead, quotas_in
from kube.errors import KubeError
from kube.resources import CONFIG_MAPS, LEASES
from kube.types import ConfigMap
from settings import LeaderElection


def addresses_of(cluster: Cluster) -> Addresses:
    """KubeError, or Failure when Drawbridge is not installed; quotas that cannot be read are left out."""
    ours = installed(cluster)
    claims = partial(
        cluster.client.list, CONFIG_MAPS, ours.namespace, type=ConfigMap, label_selector=SELECTED
    )
    election = ours.in_force.leader_election
    quotas = partial(read_quotas, cluster, election)
    found = cluster.read_all({"nodes": cluster.nodes, "claims": claims, "quotas": quotas})
    return with_quotas(
        listed(found["nodes"], found["claims"].items, ours.in_force.anycast_ip), found["quotas"]
    )


def read_quotas(cluster: Cluster, election: LeaderElection) -> QuotasRead | None:
    """None without an election, before the first read, and where the Lease may not be read."""
    name, namespace = election.resource_name, election.resource_namespace
    try:
        lease = cluster.client.get(LEASES, name, namespace, type=Lease)
    except KubeError:
        return None
    return quotas_in(lease.metadata.annotations)
