"""The pool: addresses that wait for the next node. Which of them stay, which is next, and how many are missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from cloud.types import UNBIND, Address, Quota
from controllers.anycast_ip.claim import CLUSTER_UUID, ORPHAN, POOL, Claim
from settings import AnycastIPSettings
from settings.anycast_ip import Pool

TOTAL, DAILY = "TOTAL_EIP_QUOTA", "DAILY_EIP_APPLY"
"""The quotas that an order uses."""


def in_line(pooled: Iterable[Claim]) -> Sequence[Claim]:
    """Those that are idle, the one that is next first: that which has been idle longest."""
    idle = [each for each in pooled if each.address and not each.releasing]
    return sorted(idle, key=lambda each: (each.pooled is None, each.pooled, each.uid))


def has_place(claim: Claim, pooled: Collection[Claim], settings: Pool, now: datetime) -> bool:
    """Whether the address of *claim*, whose node is gone, stays; *pooled* may have it among them.

    The longest idle *min_idle* stay whatever their age; orders that are under way have the last places. What was
    ordered for the pool, or is lent, takes no place of what is retained.
    """
    if claim.releasing or claim.uid.startswith(ORPHAN):
        return False
    if claim.lent:
        return bool(settings.adopt)
    mine = _place(claim, now)
    others = [each for each in pooled if each.uid != claim.uid and not each.releasing and not each.lent]
    before = [each for each in others if _place(each, now) < mine]
    if len(before) < settings.min_idle:
        return True
    retained = sum(each.node != POOL for each in before)
    return claim.node != POOL and is_recent(claim, settings, now) and retained < settings.retain.count


def _place(claim: Claim, now: datetime) -> tuple[bool, datetime, str]:
    return not claim.address, claim.pooled or now, claim.uid


def is_of_former_type(listed: Address | None, settings: AnycastIPSettings) -> bool:
    """Of an address in the pool: whether the type was changed in the settings since it was ordered."""
    return listed is not None and listed.type != settings.address_type


def is_recent(claim: Claim, settings: Pool, now: datetime) -> bool:
    """Whether the address of *claim* has not been idle for longer than the settings let it be."""
    return (now - (claim.pooled or now)).total_seconds() < settings.retain.age


def is_usable(address: Address, settings: AnycastIPSettings) -> bool:
    """Whether it is of the kind that would be ordered, and serves."""
    return address.type == settings.address_type and not address.blocked and not address.arrears


def is_offered(address: Address, settings: Pool) -> bool:
    """Whether its tags lend it to the pool."""
    return bool(settings.adopt) and settings.adopt.items() <= address.tags.items()


def adoptable(addresses: Iterable[Address], settings: AnycastIPSettings) -> list[Address]:
    """Those that are lent to the pool, and that neither an instance nor a cluster has."""
    return [
        each
        for each in addresses
        if each.status == UNBIND
        and is_usable(each, settings)
        and is_offered(each, settings.pool)
        and CLUSTER_UUID not in each.tags
    ]


def missing(
    claims: Collection[Claim], settings: Pool, quotas: Iterable[Quota], useless: Collection[str] = ()
) -> int:
    """How many spares to order: what the quotas leave when all of *claims* have their addresses.

    Those whose uids are among *useless* are no spares, but no more of them than the pool may have.
    """
    idle = [each.uid for each in claims if each.pooled and not each.releasing]
    no_spares = min(settings.size, sum(uid in useless for uid in idle))
    wanted = settings.min_idle - len(idle) + no_spares
    return max(0, min([wanted, *(_left(each, claims) for each in quotas if each.id in (TOTAL, DAILY))]))


def _left(quota: Quota, claims: Collection[Claim]) -> int:
    """*quota* was read some time ago: more addresses may be in use by now."""
    pending = sum(not each.address for each in claims)
    in_use = len(claims) - pending if quota.id == TOTAL else 0
    return quota.limit - max(quota.current, in_use) - pending
