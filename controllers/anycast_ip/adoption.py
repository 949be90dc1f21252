"""Take free addresses with the tags of the settings into the pool: they stay the user's, and are never released."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from cloud.errors import CloudError
from cloud.types import Address
from controllers.anycast_ip.claim import lent_claim
from controllers.anycast_ip.pool import adoptable
from controllers.anycast_ip.sources import Sources
from kube.errors import KubeError

log = structlog.stdlib.get_logger(__name__)


class Adoption:
    """*enqueue* adds a uid to the work queue."""

    def __init__(self, sources: Sources, enqueue: Callable[[str], None]) -> None:
        self._claims, self._inventory, self._settings = sources.claims, sources.inventory, sources.settings
        self._now, self._enqueue = sources.memory.clocks.now, enqueue
        self._looked_at: object = None

    def turn(self) -> None:
        """Look once for each list of the cluster's addresses, and for each change of the tags."""
        tags, read_at = self._settings().pool.adopt, self._inventory.read_at
        if not tags or read_at is None or self._looked_at == (tags, read_at):
            return
        self._looked_at = (tags, read_at)
        try:
            self._adopt()
        except (CloudError, KubeError) as error:
            log.warning("addresses not adopted", error=str(error))

    def _adopt(self) -> None:
        listed = self._free(self._inventory.tagged(min(self._settings().pool.adopt.items())))
        # A list by tags may be old, and never is one adopted that is bound.
        for address in self._free(self._inventory.as_they_are([each.id for each in listed])):
            claim = lent_claim(address, self._now())
            self._claims.put(claim)
            self._enqueue(claim.uid)
            log.info("address adopted for the pool", uid=claim.uid, address=address.id)

    def _free(self, addresses: list[Address]) -> list[Address]:
        found = adoptable(addresses, self._settings())
        return [each for each in found if not self._claims.having(each.id)]
