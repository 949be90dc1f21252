"""Actions at Tencent Cloud. Each returns the seconds after which to look again, or raises what stands in the way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

import structlog
from msgspec.structs import replace

from cloud.errors import Rejected, RetryAfter, StateConflict, TagMissing, TokenRefused
from cloud.types import Tag
from controllers.anycast_ip.claim import CLUSTER_UUID, Claim, instance_of, order_for
from controllers.anycast_ip.memory import Memory
from controllers.anycast_ip.reader import Sources
from controllers.anycast_ip.snapshot import Do, Snapshot, Step
from kube.types import Node
from settings import AnycastIPSettings
from webhook.anycast_ip import wanted

FIRST_WATCH = 0.7
LAGS = 2
"""Refusals to delete a tag that the index of tags may explain; after them its carriers are read."""
SETTLE, LONGEST_SETTLE = 2.0, 120.0
"""Seconds from the end of an address until its tags can be deleted; longer if the cloud says so."""

Action = Callable[[Snapshot, Step], Awaitable[float | None]]

log = structlog.stdlib.get_logger(__name__)


class StillThere(Exception):
    """The API server has a node that the informer does not have."""


class CloudActions:
    def __init__(self, sources: Sources, memory: Memory, settings: Callable[[], AnycastIPSettings]) -> None:
        self._nodes, self._claims, self._cloud = sources.nodes, sources.claims, sources.cloud
        self._inventory, self._cluster_uuid = sources.inventory, sources.cluster_uuid
        self._settings = settings
        self._waits, self._orders = memory.waits, memory.orders
        self._settle = SETTLE
        self.actions: Mapping[Do, Action] = {
            Do.TAG: self._tag,
            Do.ALLOCATE: self._allocate,
            Do.BIND: self._bind,
            Do.UNBIND: self._unbind,
            Do.RELEASE: self._release,
            Do.UNTAG: self._untag,
        }

    async def _tag(self, snapshot: Snapshot, _: Step) -> float:
        tags = order_for(claim_in(snapshot), self._settings(), self._cluster_uuid).tags
        await self._cloud.create_tags(snapshot.uid, tags.items())
        return 0.0

    async def _allocate(self, snapshot: Snapshot, _: Step) -> float:
        """Whatever the answer, the order counts as made, but for the refusals that leave no doubt."""
        claim = claim_in(snapshot)
        was_in_doubt = self._orders.sent(claim.token)
        self._waits.end(snapshot.uid, Do.FIND)
        try:
            address = await self._cloud.allocate(order_for(claim, self._settings(), self._cluster_uuid))
        except TokenRefused:
            self._orders.refused(claim.token)
            return 0.0
        except (RetryAfter, Rejected, TagMissing):
            if not was_in_doubt:
                self._orders.planned(claim.token)
            raise
        self._claims.put(replace(claim, address=address))
        self._orders.ended(claim.token)
        log.info("address allocated", node=claim.node, uid=claim.uid, address=address)
        return FIRST_WATCH

    async def _bind(self, snapshot: Snapshot, _: Step) -> float:
        claim = claim_in(snapshot)
        if left := self._waits.left(claim.uid, Do.BIND, claim.address):
            return left
        if claim.releasing:  # it was not released after all, and is to stay
            self._claims.put(replace(claim, releasing=False))
        self._waits.again(claim.uid, Do.BIND)
        await self._cloud.associate(claim.address, claim.instance)
        return FIRST_WATCH

    async def _unbind(self, snapshot: Snapshot, _: Step) -> float:
        claim = claim_in(snapshot)
        self._confirm(snapshot, claim)
        await self._cloud.disassociate(claim.address)
        return FIRST_WATCH

    async def _release(self, snapshot: Snapshot, _: Step) -> float:
        claim = claim_in(snapshot)
        self._confirm(snapshot, claim)
        if not claim.releasing:
            self._claims.put(replace(claim, releasing=True))
        await self._cloud.release(claim.address)
        log.info("address released", node=claim.node, uid=claim.uid, address=claim.address)
        return FIRST_WATCH

    def _confirm(self, snapshot: Snapshot, claim: Claim) -> None:
        """What cannot be undone rests on a fresh read: the node is gone, and no newer one has its instance."""
        node = self._nodes.read(claim.node) if snapshot.node is None else None
        if node and (node.metadata.uid == claim.uid or self._is_heir(node, claim)):
            raise StillThere(f"the API server has node {claim.node}")

    def _is_heir(self, node: Node, claim: Claim) -> bool:
        return instance_of(node) == claim.instance and wanted(node, self._settings())

    async def _untag(self, snapshot: Snapshot, _: Step) -> float:
        """Delete the tags and the claim. Tags that another claim or another cluster uses stay."""
        claim, uid = claim_in(snapshot), snapshot.uid
        waited = self._waits.seconds(uid, Do.RELEASE, claim.address)
        if waited < self._settle:
            return self._settle - waited
        tags = {tag for tag in claim.tags if not self._is_needed(tag, claim)}
        in_use = await self._cloud.delete_tags(uid, sorted(tags))
        self._adapt(uid, waited, refused=bool(in_use))
        if kept := in_use.keys() - await self._of_others(uid, in_use):
            return self._untag_later(uid, kept)
        self._orders.ended(claim.token)
        self._inventory.spend(claim.address)
        self._waits.end(uid)
        self._claims.drop(uid)
        return 0.0

    def _is_needed(self, tag: Tag, claim: Claim) -> bool:
        """Of two claims that go, the one with the greater uid deletes the tags that both have."""
        others = [each for each in self._claims.having(tag) if each.uid != claim.uid]
        return any(each.uid > claim.uid or self._nodes.get(each.uid) for each in others)

    def _adapt(self, uid: str, waited: float, *, refused: bool) -> None:
        if not refused:
            self._settle = max(SETTLE, 0.98 * self._settle)
        elif not self._waits.times(uid, Do.UNTAG):
            self._settle = min(LONGEST_SETTLE, max(self._settle, 2 * waited))

    async def _of_others(self, uid: str, tags: Collection[Tag]) -> set[Tag]:
        """Of tags that cannot be deleted for long, those that only addresses of other clusters carry."""
        if self._waits.times(uid, Do.UNTAG) < LAGS:
            return set()
        asked = {tag: self._cloud.carriers(tag) for tag in tags}
        found = {tag: await carriers for tag, carriers in asked.items()}
        return {
            tag
            for tag, carriers in found.items()
            if carriers and all(each.tags.get(CLUSTER_UUID) != self._cluster_uuid for each in carriers)
        }

    def _untag_later(self, uid: str, tags: Collection[Tag]) -> float:
        pause = self._waits.again(uid, Do.UNTAG)
        if self._waits.times(uid, Do.UNTAG) > LAGS:
            error = StateConflict("Attached", f"tags {set(tags)} are in use", action="DeleteTags")
            raise RetryAfter(error, pause)
        return pause


def claim_in(snapshot: Snapshot) -> Claim:
    """The planner plans these actions for none without."""
    if snapshot.claim is None:
        raise ValueError(f"node {snapshot.name} has no address claim")
    return snapshot.claim
