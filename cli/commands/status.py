"""`drawbridge status`: one list of each kind at most, and of pods only those that are pending or placed."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from functools import partial
from typing import Any

import click
import msgspec

from api.ingress_daemonset import INGRESS_DAEMONSETS
from calico.reservations import NotServed
from cli.errors import WRONG
from cli.inventory import Inventory
from cli.objects import Pod, StoredResource
from cli.output import timed
from cli.session import Command, Session, pass_session
from cli.status import Facts, PodCounts, Status, parts_of, status_of
from kube.client import Resource
from kube.errors import KubeError
from kube.resources import PODS, Selection

SECRETS = Resource("", "v1", "secrets")


class _Remaining(msgspec.Struct, rename="camel"):
    remaining_item_count: int = 0


class _Counted(msgspec.Struct):
    metadata: _Remaining
    items: list[msgspec.Raw] | None = None


class _Secret(msgspec.Struct):
    data: dict[str, str] = {}


@click.command(cls=Command)
@click.option("-w", "--watch", is_flag=True, help="Show it again whenever it changes, until Ctrl-C.")
@pass_session
def status(session: Session, watch: bool) -> None:
    """All features at a glance; what is wrong comes first.

    Ends with 1 when something is wrong.
    """

    def read() -> Status:
        return status_of(facts_of(Inventory(session.cluster)), session.cluster.now())

    if session.follow(read, timed(parts_of, session.cluster.now), watch).problems:
        raise SystemExit(WRONG)


def facts_of(inventory: Inventory, secrets: bool = True) -> Facts:
    """Raises KubeError, or Failure, when not even the installation is found; without *secrets*, reads none."""
    ours = inventory.installed
    reads = _reads(inventory)
    if secrets:
        reads["certificate"] = partial(_certificate, inventory)
    found = inventory.cluster.read(reads)
    return Facts(
        ours,
        found["lease"],
        found.get("certificate"),
        found.get("segments"),
        found.get("nodes"),
        _pods(inventory, found) if ours.in_force.elasticity.enabled else None,
        found.get("rollouts"),
        found.get("pools"),
    )


def _reads(inventory: Inventory) -> dict[str, Callable[[], Any]]:
    settings = inventory.installed.in_force
    reads: dict[str, Callable[[], Any]] = {"lease": inventory.lease}
    if settings.ip_reservation.enabled:
        reads["segments"] = partial(_or_not_served, inventory.segments)
        if settings.ip_reservation.pools.enabled:
            reads["pools"] = partial(_or_not_served, lambda: inventory.pools(inventory.segments()))
    if settings.anycast_ip.enabled:
        labels = settings.anycast_ip.node_labels.items()
        reads["nodes"] = partial(inventory.nodes, ",".join(f"{key}={value}" for key, value in labels))
    if settings.elasticity.enabled:
        pending = Selection(field_selector="status.phase=Pending")
        reads["total"] = partial(_total, inventory)
        reads["pending"] = partial(inventory.cached, PODS, Pod, pending)
        reads["super nodes"] = inventory.super_nodes
    if settings.ingress_daemonset.enabled:
        reads["rollouts"] = partial(inventory.list, INGRESS_DAEMONSETS, StoredResource)
    return reads


def _certificate(inventory: Inventory) -> bytes:
    ours = inventory.installed
    found = inventory.get(SECRETS, ours.in_force.certs.secret_name, ours.namespace, _Secret)
    return b64decode(found.data.get("tls.crt", ""))


def _or_not_served(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except NotServed as error:
        return error


def _total(inventory: Inventory) -> int:
    """Pods of the cluster: an API server that is asked for one says how many remain."""
    counted = inventory.client.request("GET", PODS.path(), query={"limit": 1}, type=_Counted)
    return len(counted.items or ()) + counted.metadata.remaining_item_count


def _pods(inventory: Inventory, found: dict[str, Any]) -> PodCounts | KubeError:
    names = found["super nodes"]
    on_nodes = (
        inventory.cluster.read({name: partial(_on_node, inventory, name) for name in names})
        if isinstance(names, list)
        else {}
    )
    for part in (names, found["total"], found["pending"], *on_nodes.values()):
        if isinstance(part, KubeError):
            return part
    return PodCounts(found["total"], found["pending"], on_nodes)


def _on_node(inventory: Inventory, name: str) -> int:
    on_node = Selection(field_selector=f"spec.nodeName={name}")
    return len(inventory.cluster.column(PODS, "Name", on_node))
