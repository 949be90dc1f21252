"""Nodes, claims and what was seen in the cloud, put together node by node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from cloud.types import Address
from controllers.anycast_ip.claim import NODE_INSTANCE, NODE_NAME, Claim, bound_to, instance_of
from controllers.anycast_ip.state import Case, Known
from kube.types import Node
from settings import AnycastIPSettings
from webhook.anycast_ip import wanted

LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Scene:
    """*nodes* and *claims* are by the uid of the node, *inventory* is what carries the cluster's tag."""

    nodes: Mapping[str, Node]
    claims: Mapping[str, Claim]
    inventory: Iterable[Address]


def cases(
    scene: Scene,
    known: dict[str, Known],
    settings: AnycastIPSettings,
    *,
    busy: Collection[str],
    now: datetime,
) -> list[Case]:
    """Of all that are not *busy*, the oldest node first, and then the claims whose nodes are gone.

    A claim that a new Node object of the same instance will inherit has no case of its own.
    """
    forebears = _forebears(scene, settings)
    inherited = {each.uid for each in forebears.values()}
    unclaimed = _by_owner(scene)
    holders = _living_holders(scene)

    def case(uid: str) -> Case:
        node, claim = scene.nodes.get(uid), scene.claims.get(uid)
        return Case(
            uid=uid,
            node=node,
            claim=claim,
            known=known.setdefault(uid, Known()),
            order_age=(now - claim.asked).total_seconds() if claim else 0.0,
            forebear=forebears.get(uid),
            found=unclaimed.get((node.metadata.name, instance_of(node))) if node else None,
            elsewhere=node is None and claim is not None and not holders.isdisjoint(_holds(claim)),
        )

    return [
        case(uid)
        for uid in _in_order(scene)
        if uid not in busy and uid not in inherited and not (uid in forebears and forebears[uid].uid in busy)
    ]


def _in_order(scene: Scene) -> list[str]:
    def born(uid: str) -> datetime:
        return scene.nodes[uid].metadata.creation_timestamp or LONG_AGO

    return [*sorted(scene.nodes, key=born), *(uid for uid in scene.claims if uid not in scene.nodes)]


def _forebears(scene: Scene, settings: AnycastIPSettings) -> dict[str, Claim]:
    """By the uid of the heir."""
    orphaned = {claim.instance: claim for uid, claim in scene.claims.items() if uid not in scene.nodes}
    if not orphaned:
        return {}
    return {
        uid: orphaned[instance]
        for uid, node in scene.nodes.items()
        if uid not in scene.claims and (instance := instance_of(node)) in orphaned and wanted(node, settings)
    }


def _by_owner(scene: Scene) -> dict[tuple[str, str], Address]:
    """What is claimed by nobody, by the name and instance of the node that it was meant for, if it is there or free."""
    claimed = {claim.address for claim in scene.claims.values()}
    found = {}
    for each in scene.inventory:
        owner = each.tags.get(NODE_NAME, ""), each.tags.get(NODE_INSTANCE, "")
        if each.id not in claimed and all(owner) and bound_to(each) in ("", owner[1]):
            found[owner] = each
    return found


def _living_holders(scene: Scene) -> set[str]:
    return {each for uid, claim in scene.claims.items() if uid in scene.nodes for each in _holds(claim)}


def _holds(claim: Claim) -> set[str]:
    """What only one claim may have: an address, or the order of one."""
    return {claim.address} if claim.address else {claim.token}
