"""Read all addresses of the cluster now and then, and reconcile every node against that list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import structlog

from api.anycast_ip import QUOTAS
from cloud.errors import CloudError
from cloud.types import Address, Quota
from controllers.anycast_ip.claim import CLUSTER_UUID, NODE_INSTANCE, NODE_NAME
from runtime import threading

if TYPE_CHECKING:
    # The command reads claims with this, and has no SDK.
    from cloud.client import Cloud

SPENT = 3600.0
"""Seconds for which an address that was given up is not taken for a free one, though a list may still have it."""

log = structlog.stdlib.get_logger(__name__)


class Inventory:
    """The *addresses* with the cluster's tag, by their ids, as of the last resync. Safe to share between threads.

    *read_at* is None until they were read for the first time; *error* is why the last attempt failed. *released* are
    addresses whose release the cloud has accepted from this process.
    """

    def __init__(self, cloud: Cloud, cluster_uuid: str, clock: Callable[[], float]) -> None:
        self.cloud, self.cluster_uuid, self._clock = cloud, cluster_uuid, clock
        self.addresses: Mapping[str, Address] = {}
        self._by_owner: dict[tuple[str, str], list[Address]] = {}
        self._spent: dict[str, float] = {}
        self._noted: dict[str, str] = {}
        self._lock = threading.Lock()
        self.read_at: float | None = None
        self.error: CloudError | None = None
        self.is_wanted = False
        self.quotas: Sequence[Quota] = ()
        self.released = set[str]()

    def read(self) -> list[Address]:
        """As far as the cloud's index of tags knows. CloudError."""
        return self.cloud.addresses_tagged(CLUSTER_UUID, [self.cluster_uuid])

    def refresh(self) -> None:
        self.is_wanted = False
        try:
            found, now = self.read(), self._clock()
        except CloudError as error:
            self.error = error
            raise
        by_owner: dict[tuple[str, str], list[Address]] = {}
        for each in found:
            owner = each.tags.get(NODE_NAME, ""), each.tags.get(NODE_INSTANCE, "")
            by_owner.setdefault(owner, []).append(each)
        with self._lock:
            self.addresses, self._by_owner = {each.id: each for each in found}, by_owner
            self._noted.clear()
            # What has not been listed for long cannot be mistaken for a free address.
            seen = {each: now if each in self.addresses else at for each, at in self._spent.items()}
            self._spent = {each: at for each, at in seen.items() if now - at < SPENT}
        self.read_at, self.error = now, None

    def want_newer(self, than: float) -> bool:
        """Whether there is a list newer *than* that; else one is read soon."""
        if self.read_at is not None and self.read_at >= than:
            return True
        self.is_wanted = True
        return False

    def note(self, address: Address) -> None:
        """It was read, and may be missing from the list."""
        with self._lock:
            self._noted[address.id] = address.ip

    def ips(self) -> dict[str, str]:
        """By the ids of addresses, as far as they were read since the last resync or in it."""
        with self._lock:
            return {**{each.id: each.ip for each in self.addresses.values()}, **self._noted}

    def unspent(self, owner: tuple[str, str]) -> Sequence[Address]:
        """Those with the tags of a node by its name and instance, but for those that were given up."""
        with self._lock:
            return [each for each in self._by_owner.get(owner, ()) if each.id not in self._spent]

    def spend(self, address_id: str) -> None:
        if address_id:
            with self._lock:
                self._spent[address_id] = self._clock()


def annotation(quotas: Sequence[Quota], at: datetime) -> dict[str, str]:
    """For the leader's Lease, which is renewed all the time, so that it costs no write."""
    found = {"at": at.replace(microsecond=0), "quotas": quotas}
    return {QUOTAS: msgspec.json.encode(found).decode()}
