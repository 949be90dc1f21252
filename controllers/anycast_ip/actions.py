"""Actions on claims and the cloud: each returns the seconds until the next look, or raises what prevents it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

import structlog
from msgspec.structs import replace

from api.anycast_ip import wanted
from cloud.errors import Gone, Rejected, RetryAfter, StateConflict, TagMissing, TokenRefused
from cloud.types import Address, Order, Tag
from controllers.anycast_ip.claim import (
    CLUSTER_UUID,
    POOL,
    Claim,
    claim_for,
    inherited,
    instance_of,
    order_for,
    renewed,
    taken,
    with_address,
)
from controllers.anycast_ip.locks import Busy, locked_by
from controllers.anycast_ip.node_actions import Action, NodeActions
from controllers.anycast_ip.planner import is_leaving
from controllers.anycast_ip.snapshot import Do, Snapshot, Step, claim_in, node_in, offer_in
from controllers.anycast_ip.sources import Sources
from controllers.anycast_ip.terms import terms_for, wanted_bandwidth
from kube.types import Node

FIRST_WATCH = 0.7
LAGS = 2
"""Refusals to delete a tag that the index of tags may explain; after them its carriers are read."""
SETTLE, LONGEST_SETTLE = 2.0, 120.0
"""Seconds from the end of an address until its tags can be deleted; longer if the cloud says so."""

log = structlog.stdlib.get_logger(__name__)


class StillThere(Exception):
    """The API server has a node that the informer does not have."""


class Actions:
    def __init__(self, sources: Sources) -> None:
        self._nodes, self._claims, self._cloud = sources.nodes, sources.claims, sources.cloud
        self._inventory, self._memory, self._settings = sources.inventory, sources.memory, sources.settings
        self._settle = SETTLE
        self.by_name: Mapping[Do, Action] = {
            Do.CLAIM: self._claim,
            Do.ADOPT: self._adopt,
            Do.INHERIT: self._inherit,
            Do.TAKE: self._take,
            Do.KEEP: self._keep,
            Do.RECORD: self._record,
            Do.RENEW: self._renew,
            Do.FORGET: self._forget,
            Do.RESIZE: self._resize,
            Do.TAG: self._tag,
            Do.ALLOCATE: self._allocate,
            Do.ANNOUNCE: self._announce,
            Do.BIND: self._bind,
            Do.UNBIND: self._unbind,
            Do.RELEASE: self._release,
            Do.UNTAG: self._untag,
            **NodeActions(sources).by_name,
        }

    async def _claim(self, snapshot: Snapshot, _: Step) -> float:
        self._put_order(self._new_claim(snapshot))
        return 0.0

    async def _renew(self, snapshot: Snapshot, _: Step) -> float:
        self._forget_address(snapshot)
        claim, node = claim_in(snapshot), snapshot.node
        terms = terms_for(node, self._settings()) if node else claim.terms
        self._put_order(renewed(claim, self._memory.clocks.now(), terms))
        return 0.0

    def _new_claim(self, snapshot: Snapshot) -> Claim:
        return claim_for(node_in(snapshot), self._settings(), self._memory.clocks.now())

    def _put_order(self, claim: Claim) -> None:
        self._claims.put(claim)
        self._memory.unsent.add(claim.token)

    async def _adopt(self, snapshot: Snapshot, step: Step) -> float:
        if step.address:
            claim = self._new_claim(snapshot)
            self._claims.put(with_address(claim, step.address, self._inventory.cluster_uuid))
            log.info("address adopted", node=claim.node, uid=claim.uid, address=step.address.id)
        return 0.0

    async def _inherit(self, snapshot: Snapshot, _: Step) -> float:
        """The new claim comes first: of two with the same address, the one without a node is just dropped."""
        if before := snapshot.related.predecessor:
            self._claims.put(inherited(before, node_in(snapshot)))
            self._claims.drop(before.uid)
        return 0.0

    async def _take(self, snapshot: Snapshot, _: Step) -> float:
        """As in an inheritance, the new claim comes first. No other reconcile is about the offer meanwhile."""
        offer = offer_in(snapshot)
        with self._memory.locks.held({locked_by(offer)}, snapshot.uid) as other:
            if other or self._claims.get(offer.uid) != offer:
                raise Busy(offer.address)
            claim = taken(offer, snapshot.claim or replace(self._new_claim(snapshot), tags=()))
            self._claims.put(claim)
            self._claims.drop(offer.uid)
        self._memory.end_order(claim.token)
        log.info("address taken from the pool", node=claim.node, uid=claim.uid, address=claim.address)
        return 0.0

    async def _keep(self, snapshot: Snapshot, step: Step) -> float:
        claim = self._confirmed(snapshot)
        ip = step.address.ip if step.address else ""
        self._claims.put(replace(claim, pooled=self._memory.clocks.now(), ip=ip))
        log.info("address kept in the pool", node=claim.node, uid=claim.uid, address=claim.address)
        return 0.0

    async def _record(self, snapshot: Snapshot, step: Step) -> float:
        if step.address:
            self._claims.put(replace(claim_in(snapshot), address=step.address.id, ip=step.address.ip))
        return 0.0

    async def _forget(self, snapshot: Snapshot, _: Step) -> float:
        self._forget_address(snapshot)
        self._claims.drop(snapshot.uid)
        return 0.0

    def _forget_address(self, snapshot: Snapshot) -> None:
        address = claim_in(snapshot).address
        self._inventory.spend(address)
        self._memory.released.discard(address)
        self._memory.waits.end(snapshot.uid)
        self._memory.egress.end(snapshot.uid)

    async def _resize(self, snapshot: Snapshot, _: Step) -> float:
        claim, waits = claim_in(snapshot), self._memory.waits
        bandwidth = wanted_bandwidth(node_in(snapshot), self._settings())
        if left := waits.left(claim.uid, Do.RESIZE, f"{claim.address} {bandwidth}"):
            return left
        pause = waits.again(claim.uid, Do.RESIZE)
        await self._cloud.set_bandwidth(claim.address, bandwidth)
        log.info("bandwidth set", node=claim.node, uid=claim.uid, address=claim.address, bandwidth=bandwidth)
        return pause

    async def _tag(self, snapshot: Snapshot, _: Step) -> float:
        await self._cloud.create_tags(snapshot.uid, self._order(claim_in(snapshot)).tags.items())
        return 0.0

    def _order(self, claim: Claim) -> Order:
        return order_for(claim, self._settings(), self._inventory.cluster_uuid)

    async def _allocate(self, snapshot: Snapshot, _: Step) -> float:
        """Whatever the answer, the order counts as made, but for the refusals that leave no doubt."""
        claim, memory = claim_in(snapshot), self._memory
        was_in_doubt = claim.token not in memory.unsent
        memory.unsent.discard(claim.token)
        memory.waits.end(snapshot.uid, Do.FIND)
        try:
            address = await self._cloud.allocate(self._order(claim))
        except TokenRefused:
            memory.refused.add(claim.token)
            return 0.0
        except (RetryAfter, Rejected, TagMissing):
            if not was_in_doubt:
                memory.unsent.add(claim.token)
            raise
        self._claims.put(replace(claim, address=address))
        memory.end_order(claim.token)
        log.info("address allocated", node=claim.node, uid=claim.uid, address=address)
        return FIRST_WATCH

    async def _announce(self, snapshot: Snapshot, _: Step) -> float:
        """What is being released is not listed, and would wait forever."""
        self._stays(claim_in(snapshot))
        return snapshot.announcement.left(self._memory.clocks.now()) if snapshot.announcement else 0.0

    def _stays(self, claim: Claim) -> None:
        self._memory.released.discard(claim.address)
        if claim.releasing or claim.pooled:  # it was not released after all
            self._claims.put(replace(claim, releasing=False, pooled=None))

    async def _bind(self, snapshot: Snapshot, _: Step) -> float:
        claim, waits = claim_in(snapshot), self._memory.waits
        if left := waits.left(claim.uid, Do.BIND, claim.address):
            return left
        self._stays(claim)
        waits.again(claim.uid, Do.BIND)
        self._memory.egress.end(claim.uid)
        await self._cloud.associate(claim.address, claim.instance)
        return FIRST_WATCH

    async def _unbind(self, snapshot: Snapshot, _: Step) -> float:
        claim = self._confirmed(snapshot)
        if snapshot.runs and not self._memory.brake.take(claim.address):
            raise Busy(claim.instance)
        await self._cloud.disassociate(claim.address)
        return FIRST_WATCH

    async def _release(self, snapshot: Snapshot, _: Step) -> float:
        """What the cloud does not know may be in another account: that is no release."""
        claim = self._confirmed(snapshot)
        if not claim.releasing:
            self._claims.put(replace(claim, releasing=True))
        with suppress(Gone):
            await self._cloud.release(claim.address)
            self._memory.released.add(claim.address)
            log.info("address released", node=claim.node, uid=claim.uid, address=claim.address)
        return FIRST_WATCH

    def _confirmed(self, snapshot: Snapshot) -> Claim:
        """What cannot be undone rests on a fresh read: the node has left, and no newer one has its instance."""
        claim = claim_in(snapshot)
        node = self._nodes.read(claim.node) if claim.node != POOL else None
        if node and self._keeps(node, claim):
            raise StillThere(f"the API server has node {claim.node}")
        return claim

    def _keeps(self, node: Node, claim: Claim) -> bool:
        """Whether *node* is the one of *claim*, and stays, or is another one on its instance."""
        if node.metadata.uid == claim.uid:
            return not is_leaving(node, claim, self._settings())
        return instance_of(node) == claim.instance and wanted(node, self._settings())

    async def _untag(self, snapshot: Snapshot, _: Step) -> float:
        """Delete the tags and the claim. Tags that another claim or another cluster uses stay."""
        claim, uid, waits = claim_in(snapshot), snapshot.uid, self._memory.waits
        waited = waits.seconds(uid, Do.RELEASE, claim.address)
        if waited < self._settle:
            return self._settle - waited
        tags = {tag for tag in claim.tags if not self._is_needed(tag, claim)}
        in_use = await self._cloud.delete_tags(uid, sorted(tags))
        self._adapt(uid, waited, refused=bool(in_use))
        if kept := in_use.keys() - await self._of_others(uid, in_use):
            return self._untag_later(uid, kept)
        self._memory.end_order(claim.token)
        self._forget_address(snapshot)
        self._claims.drop(uid)
        return 0.0

    def _is_needed(self, tag: Tag, claim: Claim) -> bool:
        """Of two claims that go, the one with the greater uid deletes the tags that both have."""
        others = [each for each in self._claims.having(tag) if each.uid != claim.uid]
        stay = [each for each in others if self._nodes.get(each.uid) or (each.pooled and not each.releasing)]
        return bool(stay) or any(each.uid > claim.uid for each in others)

    def _adapt(self, uid: str, waited: float, *, refused: bool) -> None:
        if not refused:
            self._settle = max(SETTLE, 0.98 * self._settle)
        elif not self._memory.waits.times(uid, Do.UNTAG):
            self._settle = min(LONGEST_SETTLE, max(self._settle, 2 * waited))

    async def _of_others(self, uid: str, tags: Collection[Tag]) -> set[Tag]:
        """Of tags that cannot be deleted for long, those that only addresses of others carry."""
        if self._memory.waits.times(uid, Do.UNTAG) < LAGS:
            return set()
        asked = {tag: self._cloud.carriers(tag) for tag in tags}
        found = {tag: await carriers for tag, carriers in asked.items()}
        return {
            tag
            for tag, carriers in found.items()
            if carriers and all([await self._is_of_others(each) for each in carriers])
        }

    async def _is_of_others(self, carrier: Address) -> bool:
        """Of another cluster, or of a user who has moved it: it exists, and no claim has it any more."""
        if carrier.tags.get(CLUSTER_UUID) != self._inventory.cluster_uuid:
            return True
        return not self._claims.having(carrier.id) and await self._cloud.address(carrier.id) is not None

    def _untag_later(self, uid: str, tags: Collection[Tag]) -> float:
        waits = self._memory.waits
        pause = waits.again(uid, Do.UNTAG)
        if waits.times(uid, Do.UNTAG) > LAGS:
            error = StateConflict("Attached", f"tags {set(tags)} are in use", action="DeleteTags")
            raise RetryAfter(error, pause)
        return pause
