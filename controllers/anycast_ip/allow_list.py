"""Publish all addresses that nodes have or may get, in a ConfigMap, for allow-lists of others."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta

import structlog
from prometheus_client import Gauge

from api.anycast_ip import (
    ADDRESS_ID,
    ALLOW_LIST_LABEL,
    ALLOW_LIST_VALUE,
    IDLE,
    IN_USE,
    PROMISED,
    Entries,
    Entry,
    data_of,
    entries_in,
    is_open,
)
from controllers.anycast_ip.claim import MANAGED_BY, MANAGER, ORPHAN, Claim
from controllers.anycast_ip.snapshot import Announcement
from controllers.anycast_ip.sources import Sources
from kube.errors import KubeError
from kube.store import Store
from kube.types import ConfigMap, Node

PERIOD, SOON = 2.0, 0.2
"""Seconds from one look at the addresses to the next, and to that whether they were read for the first time."""
AGAIN = 30.0
"""Seconds after which a write that failed is repeated."""
REREAD = 300.0
"""Seconds after which the ConfigMap is read again: another client may have changed or deleted it."""

ADDRESSES = Gauge("drawbridge_anycast_ip_allow_list_addresses", "Addresses in the allow-list.")
BEHIND = Gauge(
    "drawbridge_anycast_ip_allow_list_behind_seconds",
    "For how long the allow-list could not be written; 0 while it is as it should be.",
)

LONGEST_WRITE = timedelta(seconds=15)
"""From the beginning of a write until it is seen by others: the client gives up after ten seconds."""

log = structlog.stdlib.get_logger(__name__)


class AllowList:
    """Write the list when it changes, and say since when each address is in it."""

    def __init__(self, sources: Sources, announcements: Announcements, store: Store[ConfigMap]) -> None:
        self._sources, self._announcements, self._store = sources, announcements, store
        self._clock = sources.clocks.monotonic
        self._name, self._read_at = "", -math.inf
        self._failing_since: float | None = None
        self._found: ConfigMap | None = None
        self._ips: dict[str, str] = {}

    def reconcile(self, _: str) -> float:
        """Before the cluster's addresses were read once, they are not known well enough."""
        settings = self._sources.settings().allow_list
        name = settings.config_map
        if not settings.enabled:
            self._forget()
            return PERIOD
        if self._sources.inventory.read_at is None:
            return SOON
        try:
            self._publish(name)
        except (KubeError, ValueError) as error:
            self._read_at = -math.inf
            self._report(str(error))
            log.warning("allow-list not written", name=name, error=str(error))
            return AGAIN
        self._report("")
        return PERIOD

    def _forget(self) -> None:
        """While it is switched off, its ConfigMap may be deleted: what was listed has to be read again."""
        self._read_at = -math.inf
        self._announcements.note((), is_ours=False)
        self._report("")
        ADDRESSES.set(0)

    def _report(self, problem: str) -> None:
        self._announcements.problem = problem
        now = self._clock()
        since = now if self._failing_since is None else self._failing_since
        self._failing_since = since if problem else None
        BEHIND.set(now - since if problem else 0.0)

    def _publish(self, name: str) -> None:
        if name != self._name or self._clock() >= self._read_at + REREAD:
            self._found = self._store.read(name, ALLOW_LIST_LABEL)
            self._name, self._read_at = name, self._clock()
            self._note(entries_in(self._found), is_ours=False)
        before = entries_in(self._found)
        listed = self._entries(before)
        data = data_of(listed)
        if self._found is None or self._found.data != data:
            labels = {MANAGED_BY: MANAGER, ALLOW_LIST_LABEL: ALLOW_LIST_VALUE}
            self._found = self._store.write(name, labels, data=data)
            self._note(listed, before, is_ours=True)
            log.info("allow-list written", name=name, addresses=len(listed))
        ADDRESSES.set(len(listed))

    def _entries(self, before: Entries) -> Entries:
        """IPs are as the cloud says. The annotations of nodes do not count: each kubelet can write its node's."""
        nodes = {each.metadata.uid: each for each in self._sources.nodes.list()}
        claims = self._sources.claims.claims.values()
        known = {each.id: each.address for each in before} | self._ips | self._sources.inventory.ips()
        self._ips = {each.address: known[each.address] for each in claims if each.address in known}
        return entries(claims, nodes, self._ips, before, self._sources.clocks.now())

    def _note(self, listed: Entries, before: Entries = (), *, is_ours: bool) -> None:
        """Nodes may wait for what is listed and was not *before*."""
        self._announcements.note(listed, is_ours=is_ours)
        new = {each.id for each in listed if each.state != IN_USE} - {each.id for each in before}
        for claim in self._sources.claims.claims.values() if new else ():
            if claim.address in new:
                self._sources.enqueue(claim.uid)


def entries(
    claims: Collection[Claim],
    nodes: Mapping[str, Node],
    ips: Mapping[str, str],
    before: Entries,
    now: datetime,
) -> Entries:
    """One for each address, sorted; *nodes* by uid, *ips* by the ids of addresses, *before* what was listed last.

    What is being released is no longer among them, nor is what has no IP that is known yet.
    """
    at = now.replace(microsecond=0)
    since = {(each.id, each.address): min(each.since, at) for each in before}
    # Open nodes whose claims were deleted or cannot be read are about to get new claims. Of these, only what was
    # listed before: a kubelet can write any address to its own node.
    claimed = {each.uid for each in claims} | {each.address for each in claims}
    shown = {
        (each.metadata.name, each.metadata.annotations.get(ADDRESS_ID, ""))
        for uid, each in nodes.items()
        if uid not in claimed and is_open(each)
    }
    by_id = {each.id: each for each in before if (each.node, each.id) in shown and each.id not in claimed}
    for claim in claims:
        if (ip := ips.get(claim.address)) and not claim.releasing and not claim.uid.startswith(ORPHAN):
            node = nodes.get(claim.uid)
            waits = IDLE if claim.pooled else PROMISED
            by_id[claim.address] = Entry(
                address=ip,
                id=claim.address,
                node="" if claim.pooled else claim.node,
                state=IN_USE if node and is_open(node) else waits,
                since=since.get((claim.address, ip), at),
            )
    return tuple(sorted(by_id.values(), key=lambda each: (each.address, each.id)))


class Announcements:
    """Since when addresses have been in the list: what `announceBefore` counts from.

    The ConfigMap records when the write of each address began. This process counts its own writes from their answers.
    Of what another leader wrote only the beginning is known, so that the longest time that a write takes is added: a
    change of the leader makes no wait shorter, and none begins again.

    One thread calls `note`; any may call `of`. *problem* is empty when the list was written since.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._listed: Mapping[str, tuple[datetime, datetime]] = {}
        """By the ids of addresses: since when it is listed as the entry says, and since when for certain."""
        self.problem = ""

    def note(self, found: Entries, *, is_ours: bool) -> None:
        """*found* is what the list is from now on, or what was read in it, when the write was not ours."""
        now, before = self._now(), self._listed
        listed = dict[str, tuple[datetime, datetime]]()
        for each in found:
            certain = now if is_ours else min(now, min(now, each.since) + LONGEST_WRITE)
            known = before.get(each.id)
            listed[each.id] = known if known and known[0] == each.since else (each.since, certain)
        self._listed = listed

    def of(self, address_id: str, seconds: float) -> Announcement | None:
        """None when it has been listed for *seconds*."""
        times = self._listed.get(address_id)
        if times is None:
            return Announcement(problem=self.problem)
        until = times[1] + timedelta(seconds=seconds)
        return Announcement(times[1], until) if self._now() < until else None
