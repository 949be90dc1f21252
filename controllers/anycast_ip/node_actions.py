"""Actions at the API server: on address claims and on nodes. Each returns the seconds until the next look."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

import structlog
from msgspec.structs import replace

from controllers.anycast_ip.claim import Claim, claim_for, inherited, renewed, with_address
from controllers.anycast_ip.cloud_actions import Action, claim_in
from controllers.anycast_ip.memory import Memory
from controllers.anycast_ip.reader import Sources
from controllers.anycast_ip.snapshot import Do, Snapshot, Step
from kube.types import Node
from settings import AnycastIPSettings

log = structlog.stdlib.get_logger(__name__)


class NodeActions:
    def __init__(
        self,
        sources: Sources,
        memory: Memory,
        settings: Callable[[], AnycastIPSettings],
        now: Callable[[], datetime],
    ) -> None:
        self._nodes, self._claims, self._inventory = sources.nodes, sources.claims, sources.inventory
        self._cluster_uuid = sources.cluster_uuid
        self._memory, self._settings, self._now = memory, settings, now
        self.actions: Mapping[Do, Action] = {
            Do.CLAIM: self._claim,
            Do.ADOPT: self._adopt,
            Do.INHERIT: self._inherit,
            Do.RECORD: self._record,
            Do.RENEW: self._renew,
            Do.FORGET: self._forget,
            Do.OPEN: self._open,
            Do.CLOSE: self._close,
            Do.STRIP: self._strip,
            Do.FREE: self._free,
        }

    async def _claim(self, snapshot: Snapshot, _: Step) -> float:
        self._order(claim_for(_node(snapshot), self._settings(), self._now()))
        return 0.0

    async def _renew(self, snapshot: Snapshot, _: Step) -> float:
        self._forget_address(snapshot)
        self._order(renewed(claim_in(snapshot), self._now()))
        return 0.0

    def _order(self, claim: Claim) -> None:
        self._claims.put(claim)
        self._memory.orders.planned(claim.token)

    async def _adopt(self, snapshot: Snapshot, step: Step) -> float:
        claim = claim_for(_node(snapshot), self._settings(), self._now())
        if step.address:
            self._claims.put(with_address(claim, step.address, self._cluster_uuid))
            log.info("address adopted", node=claim.node, uid=claim.uid, address=step.address.id)
        return 0.0

    async def _inherit(self, snapshot: Snapshot, _: Step) -> float:
        """The new claim comes first: of two with the same address, the one without a node is just dropped."""
        if before := snapshot.related.predecessor:
            self._claims.put(inherited(before, _node(snapshot)))
            self._claims.drop(before.uid)
        return 0.0

    async def _record(self, snapshot: Snapshot, step: Step) -> float:
        if step.address:
            self._claims.put(replace(claim_in(snapshot), address=step.address.id))
        return 0.0

    async def _forget(self, snapshot: Snapshot, _: Step) -> float:
        self._forget_address(snapshot)
        self._claims.drop(snapshot.uid)
        return 0.0

    def _forget_address(self, snapshot: Snapshot) -> None:
        self._inventory.spend(claim_in(snapshot).address)
        self._memory.waits.end(snapshot.uid)

    async def _open(self, snapshot: Snapshot, step: Step) -> None:
        if step.address:
            self._nodes.open(_node(snapshot), step.address)
            self._memory.waits.end(snapshot.uid)

    async def _close(self, snapshot: Snapshot, _: Step) -> float:
        self._nodes.close(_node(snapshot))
        log.warning("open node without its address tainted", node=snapshot.name, uid=snapshot.uid)
        return 0.0

    async def _strip(self, snapshot: Snapshot, _: Step) -> float:
        self._nodes.strip(_node(snapshot))
        self._memory.wanted.discard(snapshot.uid)
        return 0.0

    async def _free(self, snapshot: Snapshot, _: Step) -> float:
        self._nodes.free(_node(snapshot))
        return 0.0


def _node(snapshot: Snapshot) -> Node:
    """The planner plans these actions for none without."""
    if snapshot.node is None:
        raise ValueError(f"node {snapshot.name} is gone")
    return snapshot.node
