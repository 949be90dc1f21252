"""Find addresses of nodes that are gone without a claim, and release them if the settings say so.

An address counts as an orphan after it was seen as one twice, over the whole grace period, each time with the nodes
read from the API server; what cannot be read, or is suspiciously empty, makes no orphans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping

import structlog
from prometheus_client import Gauge

from cloud.errors import CloudError
from cloud.types import Address
from controllers.anycast_ip.claim import (
    CLUSTER_ID,
    CLUSTER_UUID,
    NODE_INSTANCE,
    NODE_NAME,
    ORPHAN,
    POOL,
    Claim,
    bound_to,
    instance_of,
)
from controllers.anycast_ip.claim_store import CONFIG_MAPS, NAMESPACE
from controllers.anycast_ip.sources import Sources
from controllers.workqueue import Stopping
from kube.errors import KubeError
from kube.event_recorder import EventRecorder, Regarding
from kube.leader_election import LeadershipLost
from kube.types import Node
from settings.anycast_ip import ReverseReconcile

ORPHANS = Gauge(
    "drawbridge_anycast_ip_orphans", "Addresses of the cluster whose nodes are gone without a claim."
)

log = structlog.stdlib.get_logger(__name__)


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
    """Those to give back in this round, the longest known first; *since* is when each was first seen."""
    known = [each for each in found if now - since.get(each.id, math.inf) >= settings.grace]
    return sorted(known, key=lambda each: (since[each.id], each.id))[: settings.max_per_round]


class Orphans:
    """*enqueue* adds a uid to the work queue."""

    def __init__(self, sources: Sources, recorder: EventRecorder, enqueue: Callable[[str], None]) -> None:
        self._sources, self._recorder, self._enqueue = sources, recorder, enqueue
        self._settings, self._clock = sources.settings, sources.memory.clocks.monotonic
        self._since: dict[str, float] = {}
        self._searched = -math.inf

    def turn(self) -> None:
        """Search if it is due; a search that fails is logged, and repeated in the next period."""
        settings = self._settings().reverse_reconcile
        if not self._is_due(settings):
            return
        try:
            self._run(settings)
        except (LeadershipLost, Stopping):
            raise
        except (CloudError, KubeError) as error:
            log.warning("search for orphans failed", error=str(error))
        except Exception:
            log.exception("search for orphans failed")

    def _is_due(self, settings: ReverseReconcile) -> bool:
        if settings.mode == "off":
            self._since.clear()
            return False
        if self._clock() < self._searched + settings.period or self._sources.inventory.read_at is None:
            return False
        self._searched = self._clock()
        return True

    def _run(self, settings: ReverseReconcile) -> None:
        if self._sources.claims.has_unmanaged:
            log.warning("search for orphans skipped", reason="there are claims of another cluster")
            return
        inventory = self._sources.inventory
        # A report is not worth another call.
        addresses = inventory.read() if settings.mode == "release" else inventory.listed()
        claims = self._sources.claims.claims
        nodes = self._sources.nodes.read_all()  # last: a node that came meanwhile is among them
        if not nodes:
            log.warning("search for orphans skipped", reason="the API server lists no nodes")
            return
        found = orphans(addresses, nodes, claims, self._settings().cluster_id)
        ORPHANS.set(len(found))
        now = self._clock()
        ripe = due(found, self._since, settings, now)
        self._since = {each.id: self._since.get(each.id, now) for each in found}
        for each in ripe:
            self._handle(each, settings)

    def _handle(self, address: Address, settings: ReverseReconcile) -> None:
        node, releases = address.tags[NODE_NAME], settings.mode == "release"
        log.warning("orphan found", address=address.id, node=node, released=releases)
        text = f"{address.id} belongs to node {node}, which is gone: " + (
            "it is released" if releases else "reverseReconcile.mode release would release it"
        )
        about = Regarding(CONFIG_MAPS.api_version, "ConfigMap", CLUSTER_UUID, NAMESPACE)
        self._recorder.event(about, "OrphanedAnycastIp", text, type="Warning")
        if releases:
            claim = self._claim(address)
            self._sources.claims.put(claim)
            self._enqueue(claim.uid)

    def _claim(self, address: Address) -> Claim:
        """With it, the address is released like any other whose node is gone."""
        tags = tuple((key, address.tags[key]) for key in (NODE_NAME, NODE_INSTANCE))
        return Claim(
            uid=f"{ORPHAN}{address.id}",
            node=address.tags[NODE_NAME],
            instance=address.tags[NODE_INSTANCE],
            token=f"drawbridge-orphan-{address.id}"[:64],
            name=address.name,
            asked=self._sources.memory.clocks.now(),
            address=address.id,
            tags=tags,
        )
