"""The pool: addresses that wait for the next node. Which of them stay, which is next, and how many are missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime

import structlog
from prometheus_client import Counter, Gauge

from api.anycast_ip import DAILY, TOTAL, Quota
from cloud.types import UNBIND, Address
from controllers.anycast_ip.claim import (
    CLUSTER_UUID,
    ORPHAN,
    POOL,
    POOLED,
    Claim,
    is_offered,
    is_usable,
    lent_claim,
    spare_for,
)
from controllers.anycast_ip.sources import Sources
from kube.errors import Backoff
from runtime import uuid4
from settings import AnycastIPSettings
from settings.anycast_ip import Pool

log = structlog.stdlib.get_logger(__name__)
IDLE = Gauge("drawbridge_anycast_ip_idle", "Addresses in the pool, which no node uses.")
IDLE_LIMIT = Gauge("drawbridge_anycast_ip_idle_limit", "Addresses that the settings let be idle.")
OLDEST = Gauge("drawbridge_anycast_ip_idle_oldest_seconds", "For how long the first of them has been idle.")
IDLE_SECONDS = Counter(
    "drawbridge_anycast_ip_idle_seconds", "Seconds in the pool, of all addresses together."
)
PAUSES = Backoff(base=2.0, cap=120.0)
"""Between two attempts to adopt what is lent."""
ORDERING = 60.0
"""Seconds in which *min_idle* spares are ordered at most: what vanishes at once is not replaced at once."""


def in_line(pooled: Iterable[Claim]) -> Sequence[Claim]:
    """Those that are idle, the one that is next first: that which has been idle longest."""
    idle = [each for each in pooled if each.address and not each.releasing]
    return sorted(idle, key=lambda each: (each.pooled is None, each.pooled, each.uid))


def has_place(claim: Claim, pooled: Collection[Claim], settings: Pool, now: datetime) -> bool:
    """Whether the address of *claim*, whose node is gone, stays; *pooled* may have it among them.

    The longest idle *min_idle* stay whatever their age; orders that are under way have the last places. What was
    ordered for the pool, or is lent, takes no place of what is retained; what a node left unordered has none.
    """
    mine = _place(claim, now)
    before = [each for each in pooled if _takes_place(each) and _place(each, now) < mine]
    return _stays(claim, len(before), sum(each.node != POOL for each in before), settings, now)


def without_place(pooled: Collection[Claim], settings: Pool, now: datetime) -> set[str]:
    """The uids of those in the pool that `has_place` is false for, by one walk through the line."""
    over, before, retained = set[str](), 0, 0
    for claim in sorted(pooled, key=lambda each: _place(each, now)):
        if not _stays(claim, before, retained, settings, now):
            over.add(claim.uid)
        if _takes_place(claim):
            before, retained = before + 1, retained + (claim.node != POOL)
    return over


def _stays(claim: Claim, before: int, retained: int, settings: Pool, now: datetime) -> bool:
    """With so many *before* it in the pool, of which so many are *retained*."""
    if claim.releasing or claim.uid.startswith(ORPHAN) or not (claim.address or claim.pooled):
        return False
    if claim.lent:
        return bool(settings.adopt)
    if before < settings.min_idle:
        return True
    is_recent = (now - (claim.pooled or now)).total_seconds() < settings.retain.age
    return claim.node != POOL and is_recent and retained < settings.retain.most


def _takes_place(claim: Claim) -> bool:
    return not (claim.releasing or claim.lent)


def _place(claim: Claim, now: datetime) -> tuple[bool, datetime, str]:
    return not claim.address, claim.pooled or now, claim.uid


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


def missing(claims: Collection[Claim], settings: Pool, quotas: Iterable[Quota]) -> int:
    """How many spares to order: what the quotas leave when all of *claims* have their addresses."""
    wanted = settings.min_idle - sum(each.pooled is not None and not each.releasing for each in claims)
    pending = sum(not each.address for each in claims)
    for quota in quotas:
        if quota.id in (TOTAL, DAILY):
            # It was read some time ago: more addresses may be in use by now.
            in_use = len(claims) - pending if quota.id == TOTAL else 0
            wanted = min(wanted, quota.limit - max(quota.current, in_use) - pending)
    return max(0, wanted)


class Adoption:
    """Take free addresses with the tags of the settings into the pool: they stay the user's, and are never released.

    *adopted* is called when there are new ones.
    """

    def __init__(self, sources: Sources, adopted: Callable[[], None]) -> None:
        self._sources, self._claims, self._inventory = sources, sources.claims, sources.inventory
        self._adopted, self._clock = adopted, sources.clocks.monotonic
        self._looked_at: object = None
        self._failures, self._not_before = 0, -math.inf

    def look(self) -> None:
        """Once for each list of the cluster's addresses, and for each change of the tags. CloudError, KubeError."""
        tags, read_at = self._sources.settings().pool.adopt, self._inventory.read_at
        if not tags or read_at is None or self._looked_at == (tags, read_at):
            return
        if self._clock() < self._not_before:
            return
        self._failures += 1
        self._not_before = self._clock() + PAUSES.delay(self._failures)
        self._adopt(tags)
        self._looked_at, self._failures, self._not_before = (tags, read_at), 0, -math.inf

    def _adopt(self, tags: Mapping[str, str]) -> None:
        (key, value), cloud = min(tags.items()), self._inventory.cloud
        listed = self._free(cloud.addresses_tagged(key, [value]))
        # A list by tags may be old, and never is one adopted that is bound.
        for address in self._free(cloud.addresses([each.id for each in listed]).values()):
            claim = lent_claim(address, self._sources.clocks.now())
            self._inventory.note(address)  # what was read before may lack the tags
            self._claims.put(claim)
            self._sources.enqueue(claim.uid)
            log.info("address adopted for the pool", uid=claim.uid, address=address.id)
            self._adopted()

    def _free(self, addresses: Iterable[Address]) -> list[Address]:
        found = adoptable(addresses, self._sources.settings())
        return [address for address in found if not self._claims.having(address.id)]


class Upkeep:
    """Keep the pool as the settings say: count, let go what has been idle too long, and order what is missing."""

    def __init__(self, sources: Sources) -> None:
        self._sources, self._claims, self._inventory = sources, sources.claims, sources.inventory
        self._settings = sources.settings
        self._clock, self._now = sources.clocks.monotonic, sources.clocks.now
        self._counted: float | None = None
        self._ended, self._ordered = set[str](), list[float]()

    def look(self) -> None:
        settings, pooled = self._settings().pool, self._claims.having(POOLED)
        self._count(pooled, settings)
        self._end(pooled, settings)
        self._order(settings)

    def _count(self, pooled: Collection[Claim], settings: Pool) -> None:
        before, self._counted = self._counted, self._clock()
        ages = [
            (self._now() - claim.pooled).total_seconds() for claim in pooled if claim.address and claim.pooled
        ]
        IDLE.set(len(ages))
        IDLE_LIMIT.set(settings.size + sum(claim.lent for claim in pooled))
        OLDEST.set(max(ages, default=0.0))
        IDLE_SECONDS.inc(len(ages) * (self._counted - before) if before is not None else 0.0)

    def _end(self, pooled: Collection[Claim], settings: Pool) -> None:
        """Reconcile, once, those that have lost their place."""
        over = without_place(pooled, settings, self._now())
        for uid in over - self._ended:
            self._sources.enqueue(uid)
        self._ended = over

    def _order(self, settings: Pool) -> None:
        if not settings.min_idle or self._inventory.read_at is None:
            return
        now = self._clock()
        self._ordered = [at for at in self._ordered if now - at < ORDERING]
        wanted = missing(self._claims.claims.values(), settings, self._inventory.quotas)
        for _ in range(min(wanted, settings.min_idle - len(self._ordered))):
            claim = spare_for(str(uuid4()), self._settings(), self._now())
            self._ordered.append(now)
            try:
                self._claims.put_order(claim)
            finally:  # a write without an answer, too, may have left a claim
                self._sources.enqueue(claim.uid)
