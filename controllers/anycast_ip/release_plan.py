"""The next step for an address whose node is gone: unbound, released, its tags deleted, and only then forgotten."""

from __future__ import annotations

from cloud.types import BIND, BIND_ENI, UNBIND, Address
from controllers.anycast_ip.claim import Claim
from controllers.anycast_ip.state import GONE, UNKNOWN, Case, Do, Note, Step

SURE = 600.0
"""Seconds after which an order is looked up by its name before it is repeated: nobody outside knows how long the
cloud remembers a ClientToken, nor how far its index of names lags behind; it is taken to be less than this."""


def order_in_doubt(case: Case) -> Step | None:
    """What finds out whether an old order, or one that the cloud refuses to repeat, brought an address.

    One look is enough before it is repeated; before it is given up, or renewed, nothing must be found for long.
    """
    known = case.known
    if known.refused:
        return Step(Do.RENEW if known.nothing_found else Do.FIND)
    old = known.doubt and case.order_age >= SURE
    looked = case.node is not None and known.absent_since is not None
    return Step(Do.FIND) if old and not (looked or known.nothing_found) else None


def next_when_leaving(case: Case, claim: Claim) -> Step:
    if not case.known.confirmed:
        return Step(Do.CONFIRM)
    if case.elsewhere or not claim.ours:
        return Step(Do.FORGET)
    if not claim.address:
        return _without_address(case)
    seen = case.known.seen
    if seen is UNKNOWN or case.known.recheck:
        return Step(Do.WATCH)
    return _tidy(case) if seen is GONE else _with_address(seen, claim)


def _without_address(case: Case) -> Step:
    """An order in doubt is repeated: with the same token it brings the address that has to be released."""
    known = case.known
    if known.nothing_found or not known.doubt:
        return _tidy(case)
    return order_in_doubt(case) or Step(Do.ALLOCATE if known.tagged else Do.TAG)


def _with_address(seen: Address, claim: Claim) -> Step:
    if seen.status == UNBIND:
        return Step(Do.RELEASE, address=seen)
    if seen.status not in (BIND, BIND_ENI):
        return Step(Do.WATCH)
    if seen.instance_id == claim.instance:
        return Step(Do.UNBIND, address=seen)
    where = seen.instance_id or seen.network_interface_id
    text = f"{seen.id} was bound to {where} by somebody else: it stays there, and is not ours to release any more"
    return Step(Do.FORGET, Note("AnycastIpMoved", text))


def _tidy(case: Case) -> Step:
    return Step(Do.FORGET if case.known.untagged else Do.UNTAG)
