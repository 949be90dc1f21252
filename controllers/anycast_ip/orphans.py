"""Addresses of nodes that are gone without a claim are found, and given back when that is wished for.

None is taken for an orphan before it was seen as one twice, over the whole period of grace, each time with the nodes
read anew from the API server; and what cannot be read, or is suspiciously empty, makes no orphans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

import structlog
from prometheus_client import Gauge

from cloud.errors import CloudError
from cloud.types import Address
from controllers.anycast_ip.claim import (
    CLUSTER_ID,
    CLUSTER_UUID,
    NODE_INSTANCE,
    NODE_NAME,
    Claim,
    bound_to,
    instance_of,
)
from controllers.anycast_ip.claim_store import CONFIG_MAPS, Book
from controllers.anycast_ip.cluster_id import NAMESPACE
from controllers.anycast_ip.node_writer import Nodes
from controllers.anycast_ip.resync import Sweep
from controllers.workqueue import Stopping
from kube.errors import KubeError
from kube.event_recorder import EventRecorder, Regarding
from kube.leader_election import LeadershipLost
from kube.types import Node
from settings import AnycastIPSettings
from settings.anycast_ip import ReverseReconcile

ORPHANS = Gauge(
    "drawbridge_anycast_ip_orphans", "Addresses of the cluster whose nodes are gone without a claim."
)

log = structlog.stdlib.get_logger(__name__)


def orphans(
    addresses: Iterable[Address], nodes: Collection[Node], claims: Mapping[str, Claim], cluster_id: str
) -> list[Address]:
    """Those of *addresses* that nobody has a claim to, and whose node is not among *nodes* by name or instance.

    One that is bound to another instance than its node's is somebody's.
    """
    names = {node.metadata.name for node in nodes}
    instances = {instance_of(node) for node in nodes}
    claimed = {claim.address for claim in claims.values()}
    claimed_instances = {claim.instance for claim in claims.values()}
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
    def __init__(
        self,
        nodes: Nodes,
        book: Book,
        sweep: Sweep,
        recorder: EventRecorder,
        settings: Callable[[], AnycastIPSettings],
        *,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._nodes, self._book, self._sweep, self._recorder = nodes, book, sweep, recorder
        self._settings, self._clock, self._now = settings, clock, now
        self._since: dict[str, float] = {}
        self._next = -math.inf

    def is_due(self, settings: ReverseReconcile) -> bool:
        if settings.mode == "off":
            self._since.clear()
            return False
        if self._clock() < self._next:
            return False
        self._next = self._clock() + settings.period
        return True

    def run(self, settings: ReverseReconcile) -> None:
        """One round; what goes wrong is logged, and the next one makes up for it."""
        try:
            self._run(settings)
        except (LeadershipLost, Stopping):
            log.info("no orphans are given back without leadership")
        except (CloudError, KubeError) as error:
            log.warning("no orphans are looked for now", error=str(error))
        except Exception:
            log.exception("no orphans are looked for now")

    def _run(self, settings: ReverseReconcile) -> None:
        if self._book.has_strangers:
            log.warning(
                "there are claims of another cluster, whose nodes are not here: no orphans are looked for"
            )
            return
        addresses = self._sweep.inventory()
        claims = self._book.claims
        nodes = self._nodes.uids_now().values()  # last: a node that came meanwhile is among them
        if not nodes:
            log.warning("the API server lists no nodes at all: no address is taken for an orphan")
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
        log.warning("orphan", address=address.id, node=node, released=releases)
        text = f"{address.id} belongs to node {node}, which is gone: " + (
            "it is released" if releases else "reverseReconcile.mode release would release it"
        )
        about = Regarding(CONFIG_MAPS.api_version, "ConfigMap", CLUSTER_UUID, NAMESPACE)
        self._recorder.event(about, "OrphanedAnycastIp", text, type="Warning")
        if releases:
            self._book.put(self._claim(address))

    def _claim(self, address: Address) -> Claim:
        """By which it goes the way of any address whose node is gone."""
        tags = tuple((key, address.tags[key]) for key in (NODE_NAME, NODE_INSTANCE))
        return Claim(
            uid=f"orphan-{address.id}",
            node=address.tags[NODE_NAME],
            instance=address.tags[NODE_INSTANCE],
            token=f"drawbridge-orphan-{address.id}"[:64],
            name=address.name,
            asked=self._now(),
            address=address.id,
            tags=tags,
        )
