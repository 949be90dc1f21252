"""`drawbridge addresses list`: the anycast IPs of nodes, those announced or being released, and the cloud's quotas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from functools import partial

import click

from api.anycast_ip import (
    ADDRESS,
    ADDRESS_ID,
    IN_USE,
    Entries,
    Transition,
    closed_since,
    entries_in,
    is_open_without,
    is_proven_bound,
    is_tainted,
    opened_after,
    transitions_of,
    wanted,
)
from cli.anycast_ip.health import QuotaLeft, left_of, quotas_read
from cli.inventory import Inventory
from cli.output import Cell, Document, Part, Report, Table, age, bad, duration, good, left, moment, warning
from cli.session import Commands, Session, pass_session, selector_option, watch_option
from controllers.anycast_ip.claim import CLUSTER_UUID, NAMESPACE, SELECTED, Claim, instance_of
from controllers.anycast_ip.claim import read as read_claim
from controllers.anycast_ip.planner import is_leaving
from kube.errors import KubeError
from kube.resources import CONFIG_MAPS, Selection
from kube.types import ConfigMap, Node, ObjectMeta, after
from settings import AnycastIPSettings
from settings.anycast_ip import AllowList


class Announcing(Document, frozen=True):
    """*until* is the earliest time of a bind: the leader counts from the end of the write, which began at *since*."""

    node: str
    address: str
    id: str
    state: str
    since: datetime
    until: datetime


def announcing(found: Entries, settings: AllowList, now: datetime) -> tuple[Announcing, ...]:
    """The one that is next comes first."""
    waiting = [
        Announcing(each.node, each.address, each.id, each.state, each.since, after(each.since, settings.wait))
        for each in found
        if each.state != IN_USE
    ]
    return tuple(sorted((each for each in waiting if each.until > now), key=lambda each: each.until))


class State(StrEnum):
    OPEN = "open"
    UNPROVEN = "not verified"
    WITHOUT = "open without one"
    TAINTED = "tainted"
    RELEASING = "releasing"
    IDLE = "idle"
    ORDERED = "ordered for the pool"
    SKIPPED = "skipped claim"


SHOWN = {State.OPEN: good, State.IDLE: good, State.UNPROVEN: bad, State.SKIPPED: bad}
LAST = (State.IDLE, State.OPEN)
"""What needs no attention."""


class Address(Document, frozen=True):
    """*id* is that of the cloud; *ours* is false for one that was found on the instance, and is never released."""

    node: str
    address: str
    id: str
    state: State
    instance: str
    ours: bool
    since: datetime | None
    transitions: tuple[Transition, ...] = ()
    """When the node was opened and closed, the latest first."""
    opened_after: float | None = None
    """Seconds from its creation, or from when it was last closed, until it was opened; None when that is not known."""
    waits_since: datetime | None = None
    """Of a tainted node, the same beginning."""


class Addresses(Report, frozen=True):
    """*quotas* are what the leader last read of the cloud's, at *quotas_read_at*; none where that is not known.

    *announcing* are those that are not to be bound yet.
    """

    addresses: tuple[Address, ...]
    quotas: tuple[QuotaLeft, ...] = ()
    quotas_read_at: datetime | None = None
    announcing: tuple[Announcing, ...] = ()

    def parts(self, now: datetime) -> Iterator[Part]:
        columns = ("NODE", "IP", "ID", "STATE", "AGE", "OPENED AFTER", "INSTANCE", "RELEASED WITH THE NODE")
        rows = [_row(each, now) for each in self.addresses]
        yield Table(columns, rows, empty="no node needs an anycast IP", wide=3)
        if self.announcing:
            waiting = [
                (each.address, each.node or each.state, moment(each.since), left(each.until, now))
                for each in self.announcing
            ]
            yield Table(("ANNOUNCED", "FOR", "IN THE ALLOW-LIST SINCE", "BOUND IN"), waiting)
        if self.quotas_read_at:
            quotas = [(each.quota, str(each.used), str(each.limit), str(each.left)) for each in self.quotas]
            yield Table(("QUOTA OF THE CLOUD", "USED", "LIMIT", "LEFT"), quotas)
            yield f"The leader read the quotas {age(self.quotas_read_at, now)} ago."


Claims = Sequence[tuple[ObjectMeta, Claim | None]]
"""None for what the leader skips: a claim of another cluster, and one that cannot be read."""


def listed(nodes: Sequence[Node], claims: Claims, settings: AnycastIPSettings) -> tuple[Address, ...]:
    """What needs attention comes first: nodes that wait, and addresses of gone nodes that are being released.

    A node that has lost its label, and with it its address, is as one that is gone.
    """
    by_uid = {claim.uid: claim for _, claim in claims if claim}

    def is_shown(node: Node) -> bool:
        claim = by_uid.get(node.metadata.uid)
        return wanted(node, settings) or (claim is not None and not is_leaving(node, claim, settings))

    selected = [*filter(is_shown, nodes)]
    known = {each.metadata.uid for each in selected}
    found = [_of_node(each, by_uid.get(each.metadata.uid)) for each in selected]
    found += [_of_gone(claim) for claim in by_uid.values() if claim.uid not in known]
    skipped = (metadata for metadata, claim in claims if claim is None)
    found += [
        Address(each.name, "", "", State.SKIPPED, "", False, each.creation_timestamp) for each in skipped
    ]
    return tuple(sorted(found, key=_attention))


def _attention(address: Address) -> tuple[int, float, str]:
    """Idle addresses are in the order in which nodes get them."""
    since = address.since.timestamp() if address.since and address.state is State.IDLE else 0.0
    return LAST.index(address.state) if address.state in LAST else -1, since, address.node


def _row(each: Address, now: datetime) -> list[Cell]:
    state = SHOWN.get(each.state, warning)(each.state)
    released = "yes" if each.ours else "no: it is not ours"
    took = "" if each.opened_after is None else duration(each.opened_after)
    return [each.node, each.address, each.id, state, age(each.since, now), took, each.instance, released]


def _of_node(node: Node, claim: Claim | None) -> Address:
    annotations, transitions = node.metadata.annotations, transitions_of(node)
    created, tainted = node.metadata.creation_timestamp, is_tainted(node)
    proven = State.OPEN if is_proven_bound(node) else State.UNPROVEN
    proven = State.WITHOUT if is_open_without(node) else proven
    return Address(
        node.metadata.name,
        annotations.get(ADDRESS, ""),
        annotations.get(ADDRESS_ID, "") or (claim.address if claim else ""),
        State.TAINTED if tainted else proven,
        instance_of(node),
        claim.ours if claim else True,
        claim.asked if claim else None,
        transitions,
        opened_after(transitions, created),
        closed_since(transitions, created) if tainted else None,
    )


def _of_gone(claim: Claim) -> Address:
    if claim.pooled and not claim.releasing:
        state = State.IDLE if claim.address else State.ORDERED
        return Address("", claim.ip, claim.address, state, "", claim.ours, claim.pooled)
    return Address(
        claim.node, claim.ip, claim.address, State.RELEASING, claim.instance, claim.ours, claim.asked
    )


@click.group(cls=Commands)
def addresses() -> None:
    """List the anycast IPs of nodes."""


@addresses.command("list")
@selector_option("nodes")
@watch_option
@pass_session
def list_addresses(session: Session, selector: str, watch: bool) -> None:
    """List the anycast IPs of nodes.

    Waiting nodes, and IPs that are being released, come first; then idle IPs, in the order in which new nodes get
    them. Below are IPs that are announced but not bound yet, and the cloud's quotas as the leader last read them.
    """
    session.follow(lambda: addresses_of(Inventory(session.cluster), selector), watch)


def addresses_of(inventory: Inventory, labels: str = "") -> Addresses:
    """KubeError, or Failure when Drawbridge is not installed; quotas that cannot be read are left out.

    With *labels*, those of nodes that have them.
    """
    settings = inventory.installed.settings_or_defaults.anycast_ip
    own = (partial(each, inventory) for each in (address_claims, quotas_read, allow_list))
    nodes, claims, quotas, allowed = inventory.cluster.together(partial(inventory.nodes, labels), *own)
    uids = {each.metadata.uid for each in nodes}
    claims = [each for each in claims if not labels or (each[1] and each[1].uid in uids)]
    addresses = listed(nodes, claims, settings)
    waiting = announcing(allowed, settings.allow_list, inventory.now())
    return Addresses(addresses, left_of(quotas), quotas.at if quotas else None, waiting)


def address_claims(inventory: Inventory) -> Claims:
    found = inventory.list(CONFIG_MAPS, ConfigMap, Selection(inventory.namespace, label_selector=SELECTED))
    cluster = None
    with suppress(KubeError):  # without that permission, all are taken for those of this cluster
        cluster = inventory.get(CONFIG_MAPS, CLUSTER_UUID, NAMESPACE, ConfigMap).metadata.uid
    return [(each.metadata, _claim(each, cluster)) for each in found]


def _claim(found: ConfigMap, cluster: str | None) -> Claim | None:
    with suppress(ValueError):
        claim = read_claim(found)
        if cluster in (None, claim.cluster):
            return claim
    return None


def allow_list(inventory: Inventory) -> Entries:
    """Nothing without a wait, which alone makes it matter here, and where the ConfigMap may not be read."""
    settings = inventory.installed.settings_or_defaults.anycast_ip.allow_list
    if not settings.wait:
        return ()
    try:
        return entries_in(inventory.get(CONFIG_MAPS, settings.config_map, inventory.namespace, ConfigMap))
    except KubeError:
        return ()
