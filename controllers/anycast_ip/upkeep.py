"""Keep the pool as the settings say: order what is missing, let go what has been idle too long, and count."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

import structlog
from prometheus_client import Counter, Gauge

from controllers.anycast_ip.claim import POOLED, Claim, spare_for
from controllers.anycast_ip.pool import has_place, is_of_former_type, missing
from controllers.anycast_ip.sources import Sources
from kube.errors import KubeError
from runtime import uuid4
from settings.anycast_ip import Pool

IDLE = Gauge("drawbridge_anycast_ip_idle", "Addresses in the pool, which no node uses.")
IDLE_LIMIT = Gauge("drawbridge_anycast_ip_idle_limit", "Addresses that the settings let be idle.")
OLDEST = Gauge("drawbridge_anycast_ip_idle_oldest_seconds", "For how long the first of them has been idle.")
IDLE_SECONDS = Counter(
    "drawbridge_anycast_ip_idle_seconds", "Seconds in the pool, of all addresses together."
)

PERIOD = 1.0
ORDERING = 60.0
"""Seconds in which *min_idle* spares are ordered at most: what vanishes at once is not replaced at once."""

log = structlog.stdlib.get_logger(__name__)


class Upkeep:
    """*enqueue* adds a uid to the work queue."""

    def __init__(self, sources: Sources, enqueue: Callable[[str], None]) -> None:
        self._claims, self._inventory, self._memory = sources.claims, sources.inventory, sources.memory
        self._settings, self._enqueue, self._clock = (
            sources.settings,
            enqueue,
            sources.memory.clocks.monotonic,
        )
        self._turned = -math.inf
        self._ended = set[str]()
        self._ordered: list[float] = []
        self._next: Claim | None = None

    def turn(self) -> None:
        """What is due."""
        if self._clock() < self._turned + PERIOD:
            return
        passed, self._turned = self._clock() - self._turned, self._clock()
        settings, pooled = self._settings().pool, self._claims.having(POOLED)
        useless = {each.uid for each in pooled if self._is_of_former_type(each)}
        self._count(pooled, settings, passed)
        self._end([each for each in pooled if each.uid not in useless], settings)
        self._order(settings, useless)

    def _is_of_former_type(self, claim: Claim) -> bool:
        return is_of_former_type(self._inventory.get(claim.address), self._settings())

    def _count(self, pooled: Collection[Claim], settings: Pool, passed: float) -> None:
        now = self._memory.clocks.now()
        ages = [(now - each.pooled).total_seconds() for each in pooled if each.address and each.pooled]
        IDLE.set(len(ages))
        IDLE_LIMIT.set(settings.size + sum(each.lent for each in pooled))
        OLDEST.set(max(ages, default=0.0))
        IDLE_SECONDS.inc(len(ages) * passed if math.isfinite(passed) else 0.0)

    def _end(self, pooled: Collection[Claim], settings: Pool) -> None:
        """Reconcile, once, those that have lost their place."""
        now = self._memory.clocks.now()
        over = {each.uid for each in pooled if not has_place(each, pooled, settings, now)}
        for uid in over - self._ended:
            self._enqueue(uid)
        self._ended = over

    def _order(self, settings: Pool, useless: Collection[str]) -> None:
        if not settings.min_idle or self._inventory.read_at is None:
            return
        now = self._clock()
        self._ordered = [at for at in self._ordered if now - at < ORDERING]
        wanted = missing(self._claims.claims.values(), settings, self._inventory.quotas, useless)
        for _ in range(min(wanted, settings.min_idle - len(self._ordered))):
            if not self._order_one():
                return

    def _order_one(self) -> bool:
        """A write without an answer is repeated, so that it leaves one claim."""
        clocks = self._memory.clocks
        claim = self._next = self._next or spare_for(str(uuid4()), self._settings(), clocks.now())
        try:
            self._claims.put(claim)
        except KubeError as error:
            log.warning("claim to a spare not written", uid=claim.uid, error=str(error))
            return False
        self._next = None
        self._ordered.append(self._clock())
        self._memory.unsent.add(claim.token)
        self._enqueue(claim.uid)
        return True
