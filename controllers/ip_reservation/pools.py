"""Follow Calico's pools and the blocks of their addresses, where that is switched on.

They limit how much of a pool may stay reserved, and say when the next pass should not wait for its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import structlog

from calico.pools import (
    BLOCKS,
    POOLS,
    Block,
    IPPool,
    Pool,
    Range,
    decode_block,
    decode_pool,
    located,
    overlap,
    pools_of,
)
from calico.segment import IPReservation
from controllers.controller import Controller
from controllers.manager import Context
from kube.errors import Backoff
from kube.informer import Informer
from settings import IPReservationSettings

UNSERVED = 15.0
"""Seconds until the next look for pools that no group serves."""
SOON = 0.1
STALE = 150.0
"""Seconds of silence of a watch: two bookmarks have been missed, and a reconnection, too."""
PAUSES = Backoff(base=0.5, cap=30.0)

log = structlog.get_logger(__name__)


class PressureGauge:
    """Whether the pools have changed so much since the last pass that one may be short of addresses.

    An address that is assigned takes one of the room. One that becomes unassigned may have become a reservation, which
    counts against the *share*, in percent, of each pool's room that may be reserved. What a pass leaves says how many
    of both a pool can bear. It counts in percent of addresses.
    """

    def __init__(self, pools: Iterable[Pool], share: int = 100) -> None:
        self._share = share
        self._left: dict[Range, int] = {
            pool.range: pool.room * share - len(pool.ours) * 100 for pool in pools if share < 100
        }

    def rises(self, old: Block, new: Block) -> bool:
        """Whether a pool may be short after this change of a block."""
        cost = (new.assigned & ~old.assigned).bit_count() * self._share
        cost += (old.assigned & ~new.assigned).bit_count() * (100 - self._share)
        for whole, left in self._left.items():
            if overlap(whole, new.range):
                self._left[whole] = left - cost
                return cost > 0 and left < cost
        return False


class PoolWatch:
    """Nothing waits for it: while pools are not known, reservations are kept as if there were none.

    *on_pressure* is called when so much was assigned since the last read that a pool may be short of addresses.
    *known* is what was read last.
    """

    def __init__(
        self,
        context: Context,
        settings: Callable[[], IPReservationSettings],
        on_pressure: Callable[[], None] = lambda: None,
    ) -> None:
        self._context, self._settings, self._on_pressure = context, settings, on_pressure
        self._pools: Informer[IPPool] | None = None
        self._blocks: Informer[Block] | None = None
        self.known: Sequence[Pool] | None = None
        self._gauge = PressureGauge(())

    def controller(self) -> Controller:
        return Controller("ip_reservation_pools", self.reconcile, first=["pools"], rate=PAUSES)

    def reconcile(self, _key: str) -> float | None:
        """Begin to follow them as soon as both are served, and ask for a pass as soon as they are known.

        Raises KubeError while they may not be read.
        """
        if self._blocks is None and not self._begin():
            return UNSERVED
        if not self._is_synced():
            return SOON
        self._on_pressure()
        return None

    def _begin(self) -> bool:
        client, api_version = self._context.client, self._settings().calico_api_version
        pools, blocks = (located(client, plural, api_version) for plural in (POOLS, BLOCKS))
        if pools is None or blocks is None:
            log.warning("waiting for a prerequisite", resource="Calico's pools and blocks")
            return False
        for resource in (pools, blocks):
            # Without permission, this says so in the log.
            client.request("GET", resource.path(), query={"limit": 1}, type=msgspec.Raw)
        informers = self._context.informers
        self._pools = informers.of(pools, IPPool, decode=decode_pool, optional=True)
        self._blocks = informers.of(blocks, Block, decode=decode_block, optional=True)
        self._blocks.on_change(self._observe)
        return True

    def _is_synced(self) -> bool:
        return all(informer and informer.wait_synced(0) for informer in (self._pools, self._blocks))

    def read(self, reservations: Sequence[IPReservation]) -> Sequence[Pool] | None:
        """Those that give addresses; None while they are not known, or may be known from too long ago."""
        pools, blocks = self._pools, self._blocks
        self.known = None
        if pools is None or blocks is None or not self._settings().follows_pools:
            return None
        if not self._is_synced() or max(pools.silence, blocks.silence) > STALE:
            return None
        self.known = pools_of(pools.list(), blocks.list(), reservations)
        self._gauge = PressureGauge(self.known, self._settings().share_of_pools)
        return self.known

    def _observe(self, old: Block | None, new: Block | None) -> None:
        # Calico makes blocks without an address, and deletes empty ones.
        if old and new and self._gauge.rises(old, new):
            self._on_pressure()
