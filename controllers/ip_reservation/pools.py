"""Follow Calico's pools and the blocks of their addresses, where that is switched on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import structlog

from calico.pools import BLOCKS, POOLS, Block, IPPool, decode_block, decode_pool, located
from calico.segment import IPReservation
from controllers.ip_reservation.pool_usage import Pool, pools_of
from controllers.ip_reservation.pressure import PressureGauge
from controllers.manager import Context
from controllers.workqueue import WorkQueue
from kube.errors import Backoff
from kube.informer import Informer
from settings import IPReservationSettings

UNSERVED = 15.0
"""Seconds until the next look for pools that no group serves."""
SOON = 0.1
STALE = 150.0
"""Seconds of silence of a watch: two bookmarks have been missed, and a reconnection, too."""
PAUSES = Backoff(base=0.5, cap=30.0)
KEY = "pools"

log = structlog.get_logger(__name__)


class PoolWatch:
    """Nothing waits for it: while pools are not known, reservations are kept as if there were none.

    *on_pressure* is called when so much was assigned since the last read that a pool may be short of addresses.
    """

    def __init__(
        self,
        context: Context,
        settings: Callable[[], IPReservationSettings],
        on_pressure: Callable[[], None] = lambda: None,
    ) -> None:
        self._context, self._settings, self._on_pressure = context, settings, on_pressure
        self._followed: tuple[Informer[IPPool], Informer[Block]] | None = None
        self._gauge = PressureGauge(())

    @contextmanager
    def following(self) -> Iterator[None]:
        """Within the block, pools are followed if that was switched on at its begin."""
        if not self._settings().pools.enabled:
            yield
            return
        queue = WorkQueue("ip_reservation_pools", pauses=PAUSES)
        with self._context.working(queue, self.reconcile):
            queue.add(KEY)
            yield

    def reconcile(self, _key: str) -> float | None:
        """Begin to follow them as soon as both are served, and ask for a pass as soon as they are known.

        Raises KubeError while they may not be read.
        """
        if self._followed is None and not self._begin():
            return UNSERVED
        if not self._is_synced():
            return SOON
        self._on_pressure()
        return None

    def _begin(self) -> bool:
        client, api_version = self._context.client, self._settings().calico_api_version
        pools, blocks = (located(client, each, api_version) for each in (POOLS, BLOCKS))
        if pools is None or blocks is None:
            log.warning("waiting for a prerequisite", resource="Calico's pools and blocks")
            return False
        for each in (pools, blocks):
            # Without permission, this says so in the log.
            client.request("GET", each.path(), query={"limit": 1}, type=msgspec.Raw)
        informers = self._context.informers
        followed = informers.of(blocks, Block, decode=decode_block, optional=True)
        followed.on_change(self._observe)
        self._followed = informers.of(pools, IPPool, decode=decode_pool, optional=True), followed
        return True

    def _is_synced(self) -> bool:
        return all(each.wait_synced(0) for each in self._followed or ())

    def read(self, reservations: Sequence[IPReservation]) -> Sequence[Pool] | None:
        """Those that give addresses; None while they are not known, or may be known from too long ago."""
        if self._followed is None or not self._settings().pools.enabled:
            return None
        if not self._is_synced() or any(each.silence > STALE for each in self._followed):
            return None
        pools, blocks = self._followed
        found = pools_of(pools.list(), blocks.list(), reservations)
        self._gauge = PressureGauge(found, self._settings().max_pool_share)
        return found

    def _observe(self, old: Block | None, new: Block | None) -> None:
        if self._gauge.rises(old, new):
            self._on_pressure()
