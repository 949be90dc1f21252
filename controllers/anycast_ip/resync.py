"""Find addresses of nodes that are gone without a claim, and release them if the settings say so.

An address counts as an orphan after it was seen as one twice, over the whole grace period, each time with the nodes
read from the API server; what cannot be read, or is suspiciously empty, makes no orphans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping

import structlog
from prometheus_client import Gauge

from api.anycast_ip import Quota, with_quotas
from cloud.types import Address
from controllers.anycast_ip.claim import (
    CLUSTER_ID,
    CLUSTER_UUID,
    NAMESPACE,
    NODE_INSTANCE,
    NODE_NAME,
    POOL,
    Claim,
    bound_to,
    instance_of,
    orphan_claim,
)
from controllers.anycast_ip.sources import Sources
from kube.errors import Backoff
from kube.event_recorder import EventRecorder, Regarding
from kube.resources import CONFIG_MAPS
from kube.types import Node
from settings import AnycastIPSettings
from settings.anycast_ip import ReverseReconcile

PAUSES = Backoff(base=2.0, cap=120.0)
QUOTA_LEFT = Gauge(
    "drawbridge_anycast_ip_quota_left", "Addresses that may still be had, by quota.", ["quota"]
)
QUOTA_LIMIT = Gauge("drawbridge_anycast_ip_quota_limit", "Addresses that there may be, by quota.", ["quota"])
ORPHANS = Gauge(
    "drawbridge_anycast_ip_orphans", "Addresses of the cluster whose nodes are gone without a claim."
)


log = structlog.stdlib.get_logger(__name__)


class Resync:
    """Read addresses, quotas and late claims when that is due, and reconcile all nodes then, as after new settings.

    *annotate* writes the quotas to the leader's Lease.
    """

    def __init__(self, sources: Sources, annotate: Callable[[Mapping[str, str]], None]) -> None:
        self._sources, self._inventory, self._annotate = sources, sources.inventory, annotate
        self._clock = sources.clocks.monotonic
        self._settings: AnycastIPSettings | None = None
        self._began, self._failures = self._clock(), 0

    def look(self) -> None:
        """CloudError, KubeError."""
        settings, began = self._sources.settings(), self._began
        if self._failures:
            began += PAUSES.delay(self._failures)
        elif self._settings is not None and not self._inventory.is_wanted:
            began += settings.resync_period
        is_due, have_changed = began <= self._clock(), settings != self._settings
        self._settings = settings
        try:
            if is_due:
                self._read()
        finally:
            if is_due or have_changed:
                self._sources.enqueue_all()

    def _read(self) -> None:
        self._began = self._clock()
        self._failures += 1
        self._inventory.refresh()
        self._failures = 0
        for uid in self._sources.claims.look_for_late():
            self._sources.enqueue(uid)
        # Last: to read them may not be permitted.
        rows = self._inventory.cloud.quotas()
        quotas = [Quota(each.quota_id, each.quota_current, each.quota_limit) for each in rows]
        self._inventory.quotas = quotas
        for quota in quotas:
            QUOTA_LEFT.labels(quota.id).set(quota.limit - quota.current)
            QUOTA_LIMIT.labels(quota.id).set(quota.limit)
        self._annotate(with_quotas(quotas, self._sources.clocks.now()))


def orphans(
    addresses: Iterable[Address], nodes: Collection[Node], claims: Mapping[str, Claim], cluster_id: str
) -> list[Address]:
    """Those of *addresses* without a claim whose node is not among *nodes*, by name or instance.

    One that is bound to another instance than its node's is in use.
    """
    names = {node.metadata.name for node in nodes}
    instances = {instance_of(node) for node in nodes}
    claimed = {claim.address for claim in claims.values()}
    # The instance of spares is the same for all: only an order that has not brought its address yet may explain one.
    counted = [claim for claim in claims.values() if claim.instance != POOL or not claim.address]
    claimed_instances = {claim.instance for claim in counted}
    return [
        each
        for each in addresses
        if each.id not in claimed
        and each.tags.get(CLUSTER_ID) == cluster_id
        and (instance := each.tags.get(NODE_INSTANCE, ""))
        and instance not in instances | claimed_instances
        and each.tags.get(NODE_NAME, "") not in names | {""}
        and bound_to(each) in ("", instance)
    ]


def due(
    found: Collection[Address], since: Mapping[str, float], settings: ReverseReconcile, now: float
) -> list[Address]:
    """Those to give back in this round, or to report, the longest known first; *since* is when each was first seen."""
    known = [each for each in found if now - since.get(each.id, math.inf) >= settings.grace]
    most = settings.max_per_round if settings.mode == "release" else None
    return sorted(known, key=lambda each: (since[each.id], each.id))[:most]


class Orphans:
    """Search for orphans in each period; give them claims, with which they are released, if the settings say so."""

    def __init__(self, sources: Sources, recorder: EventRecorder) -> None:
        self._sources, self._recorder = sources, recorder
        self._settings, self._clock = sources.settings, sources.clocks.monotonic
        self._since: dict[str, float] = {}
        self._searched = -math.inf

    def look(self) -> None:
        """Search if it is due; a search that fails is repeated in the next period. CloudError, KubeError."""
        settings, inventory, now = self._settings().reverse_reconcile, self._sources.inventory, self._clock()
        if not settings.enabled:
            self._since.clear()
            ORPHANS.set(0)
            return
        if now < self._searched + settings.period or inventory.read_at is None:
            return
        self._searched = now
        if self._sources.claims.has_unmanaged:
            log.warning("search for orphans skipped", reason="there are claims of another cluster")
            return
        if settings.mode == "release":  # a report is not worth another call
            inventory.refresh()
        addresses = inventory.addresses.values()
        claims = self._sources.claims.claims
        nodes = self._sources.nodes.read_all()  # last: a node that came meanwhile is among them
        if not nodes:
            log.warning("search for orphans skipped", reason="the API server lists no nodes")
            return
        found = orphans(addresses, nodes, claims, self._settings().cluster_id)
        ORPHANS.set(len(found))
        ripe = due(found, self._since, settings, now)
        self._since = {each.id: self._since.get(each.id, now) for each in found}
        releases = settings.mode == "release"
        for address in ripe:
            node = address.tags[NODE_NAME]
            log.warning("orphan found", address=address.id, node=node, released=releases)
            text = f"{address.id} belongs to node {node}, which is gone: " + (
                "it is released" if releases else "reverseReconcile.mode release would release it"
            )
            about = Regarding(CONFIG_MAPS.api_version, "ConfigMap", CLUSTER_UUID, NAMESPACE)
            self._recorder.event(about, "OrphanedAnycastIp", text, type="Warning")
            if releases:
                claim = orphan_claim(address, self._sources.clocks.now())
                self._sources.claims.put(claim)
                self._sources.enqueue(claim.uid)
