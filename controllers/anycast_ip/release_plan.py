"""Plan the release of an address whose node is gone: unbind, release, delete the tags, and only then the claim."""

from __future__ import annotations

from cloud.types import BIND, BIND_ENI, UNBIND, Address
from controllers.anycast_ip.claim import Claim
from controllers.anycast_ip.snapshot import GONE, UNKNOWN, Do, Note, Order, Snapshot, Step

SURE = 600.0
"""Seconds after which an order is looked up by its name before it is repeated. How long the cloud remembers a
ClientToken, and how far its index of names lags behind, is not documented; it is taken to be less than this."""
LAG = 60.0
"""Seconds for which nothing must be found by the name of an order before it is taken to have brought nothing."""


def plan_order(snapshot: Snapshot) -> Step:
    """Order an address, once it is known what became of the order before.

    Whether an old order, or one that the cloud refuses to repeat, brought an address is looked up by its name. One
    look is enough before it is repeated; before it is given up, or renewed, nothing must be found for long.
    """
    order, lookup = snapshot.order, snapshot.order.lookup
    if lookup and lookup.found:
        return Step(Do.RECORD, address=lookup.found)
    if order.refused:
        return Step(Do.RENEW if has_brought_nothing(order) else Do.FIND)
    is_old = order.in_doubt and order.age >= SURE
    if is_old and not (lookup and snapshot.node) and not has_brought_nothing(order):
        return Step(Do.FIND)
    return Step(Do.ALLOCATE if order.tagged else Do.TAG)


def has_brought_nothing(order: Order) -> bool:
    return order.lookup is not None and order.lookup.found is None and order.lookup.seconds >= LAG


def plan_release(snapshot: Snapshot, claim: Claim) -> Step:
    if snapshot.related.heir:
        return Step(Do.NOTHING)  # it takes the claim over
    if snapshot.related.elsewhere or not claim.ours:
        return Step(Do.FORGET)
    if not claim.address:
        return _without_address(snapshot)
    seen = snapshot.seen.address
    if seen is UNKNOWN:
        return Step(Do.WATCH)
    return Step(Do.UNTAG) if seen is GONE else _with_address(seen, claim)


def _without_address(snapshot: Snapshot) -> Step:
    """Repeat an order in doubt: with the same token it brings the address that has to be released."""
    is_settled = has_brought_nothing(snapshot.order) or not snapshot.order.in_doubt
    return Step(Do.UNTAG) if is_settled else plan_order(snapshot)


def _with_address(seen: Address, claim: Claim) -> Step:
    if seen.status == UNBIND:
        return Step(Do.RELEASE, address=seen)
    if seen.status not in (BIND, BIND_ENI):
        return Step(Do.WATCH)
    if seen.instance_id == claim.instance:
        return Step(Do.UNBIND, address=seen)
    where = seen.instance_id or seen.network_interface_id
    text = f"{seen.id} was bound to {where} by another user: it stays there and is not released"
    return Step(Do.FORGET, Note("AnycastIpMoved", text))
