"""`drawbridge status`."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click
import msgspec

from api.ingress_daemonset import INGRESS_DAEMONSETS
from calico.reservations import NotServed, Reservations
from calico.segment import IPReservation
from cli.cluster import Cluster
from cli.errors import WRONG
from cli.installation import Installed, Lease
from cli.inventory import installed, pools_of
from cli.output import timed
from cli.pools import PoolFacts
from cli.session import Command, Session, pass_session
from cli.status import Facts, PendingPod, PodCounts, Rolled, Status, parts_of, status_of
from kube.client import Resource
from kube.errors import KubeError
from kube.resources import LEASES, PODS, Selection


@click.command(cls=Command)
@click.option("-w", "--watch", is_flag=True, help="Show it again whenever it changes, until Ctrl-C.")
@pass_session
def status(session: Session, watch: bool) -> None:
    """All features at a glance; what is wrong comes first.

    Ends with 1 when something is wrong.
    """

    def read() -> Status:
        return status_of(facts_of(session.cluster), session.cluster.now())

    if session.follow(read, timed(parts_of, session.cluster.now), watch).problems:
        raise SystemExit(WRONG)


SECRETS = Resource("", "v1", "secrets")


class _Remaining(msgspec.Struct, rename="camel"):
    remaining_item_count: int = 0


class _Counted(msgspec.Struct):
    metadata: _Remaining
    items: list[msgspec.Raw] | None = None


class _Secret(msgspec.Struct):
    data: dict[str, str] = {}


def facts_of(cluster: Cluster, secrets: bool = True) -> Facts:
    """Raises KubeError, or Failure, when not even the installation is found; without *secrets*, reads none."""
    ours = installed(cluster)
    reads = _reads(cluster, ours)
    if secrets:
        reads["certificate"] = partial(_certificate, cluster, ours)
    found = cluster.read(reads)
    return Facts(
        ours,
        found["lease"],
        found.get("certificate"),
        found.get("segments"),
        found.get("nodes"),
        _pods(cluster, found) if ours.in_force.elasticity.enabled else None,
        found.get("rollouts"),
        found.get("pools"),
    )


def _reads(cluster: Cluster, ours: Installed) -> dict[str, Callable[[], Any]]:
    client, settings = cluster.client, ours.in_force
    election = settings.leader_election
    reads: dict[str, Callable[[], Any]] = {
        "lease": partial(client.get, LEASES, election.resource_name, election.resource_namespace, type=Lease),
    }
    if settings.ip_reservation.enabled:
        reads["segments"] = partial(_segments, cluster, settings.ip_reservation.calico_api_version)
        if settings.ip_reservation.pools.enabled:
            reads["pools"] = partial(_headroom, cluster, settings.ip_reservation.calico_api_version)
    if settings.anycast_ip.enabled:
        labels = settings.anycast_ip.node_labels.items()
        reads["nodes"] = partial(cluster.nodes, ",".join(f"{key}={value}" for key, value in labels))
    if settings.elasticity.enabled:
        pending = Selection(field_selector="status.phase=Pending")
        reads["total"] = partial(_total, cluster)
        reads["pending"] = partial(cluster.cached, PODS, PendingPod, pending)
        reads["super nodes"] = cluster.super_nodes
    if settings.ingress_daemonset.enabled:
        reads["rollouts"] = lambda: client.list(INGRESS_DAEMONSETS, type=Rolled).items
    return reads


def _certificate(cluster: Cluster, ours: Installed) -> bytes:
    name = ours.in_force.certs.secret_name
    found = cluster.client.get(SECRETS, name, ours.namespace, type=_Secret)
    return b64decode(found.data.get("tls.crt", ""))


def _segments(cluster: Cluster, api_version: str) -> Sequence[IPReservation] | NotServed:
    try:
        return Reservations(cluster.client, api_version).list()
    except NotServed as error:
        return error


def _headroom(cluster: Cluster, api_version: str) -> PoolFacts | NotServed:
    try:
        return pools_of(cluster, Reservations(cluster.client, api_version).list())
    except NotServed as error:
        return error


def _total(cluster: Cluster) -> int:
    """Pods of the cluster: an API server that is asked for one says how many remain."""
    counted = cluster.client.request("GET", PODS.path(), query={"limit": 1}, type=_Counted)
    return len(counted.items or ()) + counted.metadata.remaining_item_count


def _pods(cluster: Cluster, found: dict[str, Any]) -> PodCounts | KubeError:
    names = found["super nodes"]
    on_nodes = (
        cluster.read({name: partial(_on_node, cluster, name) for name in names})
        if isinstance(names, list)
        else {}
    )
    for each in (names, found["total"], found["pending"], *on_nodes.values()):
        if isinstance(each, KubeError):
            return each
    return PodCounts(found["total"], found["pending"], on_nodes)


def _on_node(cluster: Cluster, name: str) -> int:
    return len(cluster.column(PODS, "Name", Selection(field_selector=f"spec.nodeName={name}")))
