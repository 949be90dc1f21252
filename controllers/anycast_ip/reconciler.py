"""Reconcile one node at a time, each as if it were the only one; while one waits for the cloud, others go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import structlog
from msgspec.structs import replace

from api.anycast_ip import (
    ADDRESS,
    ADDRESS_ID,
    BOUND,
    CLOSED,
    HISTORY,
    OPEN,
    TAINT,
    is_tainted,
    wanted,
    with_transition,
)
from cloud.batched import BatchedCloud, Pending
from cloud.errors import CloudError, Gone, Rejected, RetryAfter, StateConflict, TagMissing, TokenRefused
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
    terms_for,
    wanted_bandwidth,
    with_address,
)
from controllers.anycast_ip.planner import bound_annotations, is_leaving, plan
from controllers.anycast_ip.reader import BUSY, Busy, Memory, Reader, locked_by
from controllers.anycast_ip.reporter import Reporter, StillThere, refusal
from controllers.anycast_ip.snapshot import READS, Checked, Do, Snapshot, Step, claim_in, node_in, offer_in
from controllers.anycast_ip.sources import Sources
from controllers.workqueue import PENDING, Stopping, WorkQueue
from kube.errors import KubeError
from kube.leader_election import LeadershipLost
from kube.types import Node
from settings import AnycastIPSettings

WITHOUT_INVENTORY = (Do.NOTHING, Do.CLOSE, Do.FREE)
"""Actions for which no address has to be known."""

T = TypeVar("T")
Reconciling = Coroutine[Pending[Any], None, float | None]

log = structlog.stdlib.get_logger(__name__)


class Reconciler:
    """`reconcile` is for the workers of *queue*, whose keys are uids of nodes; a key is with one worker at a time.

    A reconcile is a coroutine. When it awaits the cloud it is suspended, and its key is queued again for the answer:
    thousands of nodes can wait for their part in a call without a thread each. An action that has turns is decided
    again when it is the node's turn. *ended* is called with the uid after each.
    """

    def __init__(
        self,
        sources: Sources,
        memory: Memory,
        cloud: BatchedCloud,
        reporter: Reporter,
        queue: WorkQueue,
        ended: Callable[[str], None],
    ) -> None:
        self._nodes, self._inventory, self._settings = sources.nodes, sources.inventory, sources.settings
        self._reader, self._actions = Reader(sources, memory, cloud), Actions(sources, memory, cloud).by_name
        self._memory, self._reporter, self._queue, self._ended = memory, reporter, queue, ended
        self._turns = {Do.ALLOCATE: cloud.allocating, Do.BIND: cloud.binding, Do.UNBIND: cloud.unbinding}
        self._changed: set[str] = set()
        self._suspended: dict[str, tuple[Reconciling, Pending[Any]]] = {}
        self._refused: set[str] = set()

    def add(self, uid: str) -> None:
        """Queue *uid* for a decision on what is the case now, or later."""
        self._changed.add(uid)
        self._queue.add(uid)

    def reconcile(self, uid: str) -> float | None:
        """Begin a reconcile, or go on with one that was suspended."""
        coroutine, pending = self._suspended.get(uid, (None, None))
        if coroutine and pending and not pending.done():
            if uid not in self._changed or not pending.cancel():
                return PENDING
            coroutine.close()  # it waited for its turn, and something has changed: decide again
            coroutine = None
        self._suspended.pop(uid, None)
        if coroutine is None:
            self._changed.discard(uid)
            coroutine = self._reconcile(uid)
        return self._advance(uid, coroutine)

    def try_refused(self) -> None:
        """Reconcile the nodes that were refused: what stood in their way may be over."""
        for uid in list(self._refused):
            self.add(uid)

    def _advance(self, uid: str, coroutine: Reconciling) -> float | None:
        try:
            pending = coroutine.send(None)
        except StopIteration as end:
            again: float | None = end.value
            self._ended(uid)
        else:
            self._suspended[uid] = coroutine, pending
            pending.add_done_callback(lambda done: None if done.cancelled() else self._queue.add(uid))
            return PENDING
        if uid in self._changed:
            self._queue.add(uid)  # it was suspended, or at work, while something changed
        return again

    async def _reconcile(self, uid: str) -> float | None:
        self._refused.discard(uid)
        with self._memory.locks.held(self._reader.instances(uid), uid) as other:
            if other:
                if self._reader.local(uid).related.predecessor:
                    self.add(other)  # it decides again, and leaves its claim to this node
                return BUSY
            try:
                return await self._work(uid)
            except Busy:
                return BUSY
            except RetryAfter as later:
                self._refused.add(uid)
                return later.seconds
            except (CloudError, KubeError, StillThere):
                self._queue.retry(uid)
                return PENDING

    async def _work(self, uid: str) -> float | None:
        snapshot, step = await self._decide(uid)
        turns = self._turns.get(step.do)
        if turns is None:
            return await self._act(snapshot, step)
        turn = turns.take()
        waited = not turn.done()
        try:
            await turn
            if waited:
                before, (snapshot, step) = step, await self._decide(uid)
                if step.do is not before.do:
                    return 0.0
            return await self._act(snapshot, step)
        finally:
            if not turn.cancel():
                turns.give_back()

    async def _decide(self, uid: str) -> tuple[Snapshot, Step]:
        """Plan, ask the cloud what the plan needs, and plan again."""
        settings, asked = self._settings(), set[Do]()
        snapshot = self._reader.local(uid)
        while (step := self._plan(snapshot, settings)).do in READS and step.do not in asked:
            asked.add(step.do)
            snapshot = await self._reported(snapshot, step.do, self._reader.read(snapshot, step.do))
        self._memory.brake.note(uid, is_held=step.do is Do.EXAMINE)
        self._reporter.planned(snapshot, step, settings)
        return snapshot, step

    def _plan(self, snapshot: Snapshot, settings: AnycastIPSettings) -> Step:
        """Before the cluster's addresses were read once, nothing is known well enough to act on."""
        step, error = plan(snapshot, settings), self._inventory.error
        if self._inventory.read_at is not None or step.do in WITHOUT_INVENTORY:
            return step
        return Step(Do.NOTHING, refusal("FailedAllocateAnycastIp", error) if error else None)

    async def _act(self, snapshot: Snapshot, step: Step) -> float | None:
        if step.do is Do.NOTHING:
            self._rest(snapshot)
            return None
        if step.do in READS:
            return self._memory.waits.again(snapshot.uid, step.do)
        again = await self._reported(snapshot, step.do, self._actions[step.do](snapshot, step))
        self._reporter.done(snapshot, step)
        self._pass_on(snapshot, step)
        return again

    def _pass_on(self, snapshot: Snapshot, step: Step) -> None:
        """Reconcile the others that the change concerns."""
        if step.do is Do.KEEP:
            self.try_refused()
        elif step.do is Do.INHERIT and snapshot.related.predecessor:
            self.add(snapshot.related.predecessor.uid)
        elif step.do is Do.TAKE and snapshot.pool.offer:
            self.add(snapshot.pool.offer.uid)

    def _rest(self, snapshot: Snapshot) -> None:
        if snapshot.node is None and snapshot.claim is None:
            self._memory.forget(snapshot.uid)
            self._nodes.wanted.discard(snapshot.uid)
            self._reporter.forget(snapshot.uid)
        if snapshot.related.heir:
            self.add(snapshot.related.heir)

    async def _reported(self, snapshot: Snapshot, do: Do, work: Awaitable[T]) -> T:
        try:
            return await work
        except (LeadershipLost, Stopping, Busy):
            raise
        except Exception as error:
            failures = max(
                self._queue.failures(snapshot.uid) + 1, self._memory.waits.attempts(snapshot.uid, do)
            )
            self._reporter.failure(snapshot, do, error, failures)
            raise


FIRST_WATCH = 0.7
LAGS = 2
"""Refusals to delete a tag that the index of tags may explain; after them its carriers are read."""
SETTLE, LONGEST_SETTLE = 2.0, 120.0
"""Seconds from the end of an address until its tags can be deleted; longer if the cloud says so."""


class Actions:
    def __init__(self, sources: Sources, memory: Memory, cloud: BatchedCloud) -> None:
        self._nodes, self._claims, self._inventory = sources.nodes, sources.claims, sources.inventory
        self._settings, self._clocks = sources.settings, sources.clocks
        self._memory, self._cloud = memory, cloud
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
            **NodeActions(sources, memory).by_name,
        }

    async def _claim(self, snapshot: Snapshot, _: Step) -> float:
        self._claims.put_order(self._new_claim(snapshot))
        return 0.0

    async def _renew(self, snapshot: Snapshot, _: Step) -> float:
        self._forget_address(snapshot)
        claim, node = claim_in(snapshot), snapshot.node
        terms = terms_for(node, self._settings()) if node else claim.terms
        self._claims.put_order(renewed(claim, self._clocks.now(), terms))
        return 0.0

    def _new_claim(self, snapshot: Snapshot) -> Claim:
        return claim_for(node_in(snapshot), self._settings(), self._clocks.now())

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
        self._claims.end_order(claim.token)
        log.info("address taken from the pool", node=claim.node, uid=claim.uid, address=claim.address)
        return 0.0

    async def _keep(self, snapshot: Snapshot, step: Step) -> float:
        claim = self._confirmed(snapshot)
        ip = step.address.ip if step.address else ""
        self._claims.put(replace(claim, pooled=self._clocks.now(), ip=ip))
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
        self._inventory.released.discard(address)
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
        claim = claim_in(snapshot)
        was_in_doubt = claim.token not in self._claims.unsent
        self._claims.unsent.discard(claim.token)
        self._memory.waits.end(snapshot.uid, Do.FIND)
        try:
            address = await self._cloud.allocate(self._order(claim))
        except TokenRefused:
            self._claims.refused.add(claim.token)
            return 0.0
        except (RetryAfter, Rejected, TagMissing):
            if not was_in_doubt:
                self._claims.unsent.add(claim.token)
            raise
        self._claims.put(replace(claim, address=address))
        self._claims.end_order(claim.token)
        log.info("address allocated", node=claim.node, uid=claim.uid, address=address)
        return FIRST_WATCH

    async def _announce(self, snapshot: Snapshot, _: Step) -> float:
        """What is being released is not listed, and would wait forever."""
        self._stays(claim_in(snapshot))
        return snapshot.announcement.left(self._clocks.now()) if snapshot.announcement else 0.0

    def _stays(self, claim: Claim) -> None:
        self._inventory.released.discard(claim.address)
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
            self._inventory.released.add(claim.address)
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
        self._claims.end_order(claim.token)
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


UNMARKED: Mapping[str, str | None] = {ADDRESS_ID: None, ADDRESS: None, BOUND: None}

Action = Callable[[Snapshot, Step], Awaitable[float | None]]


class NodeActions:
    def __init__(self, sources: Sources, memory: Memory) -> None:
        self._nodes, self._settings, self._clocks = sources.nodes, sources.settings, sources.clocks
        self._memory = memory
        self.by_name: Mapping[Do, Action] = {
            Do.CHECK: self._check,
            Do.OPEN: self._open,
            Do.CLOSE: self._close,
            Do.STRIP: self._strip,
            Do.FREE: self._free,
        }

    async def _check(self, snapshot: Snapshot, step: Step) -> float | None:
        """Let a pod find out; when it has ended, the node is reconciled again."""
        settings, checks = self._settings().egress_check, self._memory.egress
        if step.address is None:
            return None
        check = checks.begun(snapshot.uid, Checked(step.address.id, step.address.ip, settings.url))
        if not check.token:
            return checks.left(check)
        if check.created is None:
            self._nodes.probes.create(check.token, node_in(snapshot), step.address, settings)
            checks.created(snapshot.uid, check)
        return settings.timeout

    async def _open(self, snapshot: Snapshot, step: Step) -> float | None:
        if step.address is None:
            return None
        node = node_in(snapshot)
        # What it shows may be renewed while it is open.
        history = self._history(node, OPEN, step.address.id) if is_tainted(node) else {}
        self._nodes.write(node, {**bound_annotations(node, step.address), **history})
        self._memory.waits.end(snapshot.uid)
        is_right = wanted_bandwidth(node, self._settings()) in (0, step.address.bandwidth)
        return None if is_right else 0.0

    async def _close(self, snapshot: Snapshot, _: Step) -> float:
        node = node_in(snapshot)
        lost = node.metadata.annotations.get(ADDRESS_ID, "")
        history = {} if is_tainted(node) else self._history(node, CLOSED, lost)
        self._nodes.write(node, {**UNMARKED, **history}, TAINT)
        log.warning("open node without its address tainted", node=snapshot.name, uid=snapshot.uid)
        return 0.0

    def _history(self, node: Node, to: str, address: str) -> Mapping[str, str]:
        return with_transition(node, self._clocks.now(), to, address)

    async def _strip(self, snapshot: Snapshot, _: Step) -> float:
        self._nodes.write(node_in(snapshot), {**UNMARKED, HISTORY: None})
        self._nodes.wanted.discard(snapshot.uid)
        return 0.0

    async def _free(self, snapshot: Snapshot, _: Step) -> float:
        self._nodes.write(node_in(snapshot), {})
        return 0.0
