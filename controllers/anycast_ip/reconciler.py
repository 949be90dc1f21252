"""Reconcile one node at a time, each as if it were the only one: read a snapshot, plan the next action, run it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

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
from cloud.batched import BatchedCloud
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
from controllers.anycast_ip.snapshot import (
    READS,
    Action,
    Checked,
    Snapshot,
    Step,
    claim_in,
    node_in,
    offer_in,
)
from controllers.anycast_ip.sources import Sources
from controllers.workqueue import PENDING, Stopping, WorkQueue
from kube.errors import KubeError
from kube.leader_election import LeadershipLost
from kube.types import Node
from runtime import threading
from settings import AnycastIPSettings

WITHOUT_INVENTORY = (Action.NOTHING, Action.CLOSE, Action.FREE)
"""Actions for which no address has to be known."""

AT_A_TIME = 24
"""Nodes that decide and act at a time where the cloud's API has no batches: enough that none is missed at its rate, and
few, so that no decision is older than their part in its line."""

T = TypeVar("T")

FIRST_WATCH = 0.7
LAGS = 2
"""Refusals to delete a tag that the index of tags may explain; after them its carriers are read."""
SETTLE, LONGEST_SETTLE = 2.0, 120.0
"""Seconds from the end of an address until its tags can be deleted; longer if the cloud says so."""
UNMARKED: Mapping[str, str | None] = {ADDRESS_ID: None, ADDRESS: None, BOUND: None}
Run = Callable[[Snapshot, Step], float | None]
"""One action: it returns the seconds until the next look, or raises what prevents it."""

log = structlog.stdlib.get_logger(__name__)


class Line:
    """Let *limit* nodes at a time decide and act; others wait, and *enqueue* takes the uid of each when it is its turn.

    So what is sent at a slow pace was decided shortly before, however long the line is, and who waits needs no worker.
    """

    def __init__(self, limit: int, enqueue: Callable[[str], None]) -> None:
        self._limit, self._enqueue = limit, enqueue
        self._turns, self._waiting = set[str](), dict[str, None]()
        self._lock = threading.Lock()

    def enter(self, uid: str) -> bool:
        """Whether it is the turn of *uid*; else it has its place in line."""
        with self._lock:
            if len(self._turns) < self._limit:
                self._turns.add(uid)
            if uid not in self._turns:
                self._waiting[uid] = None
            return uid in self._turns

    def leave(self, uid: str) -> None:
        with self._lock:
            self._waiting.pop(uid, None)
            if uid not in self._turns:
                return
            self._turns.discard(uid)
            following = next(iter(self._waiting), "")
            if following:
                del self._waiting[following]
                self._turns.add(following)
        if following:
            self._enqueue(following)


class Reconciler:
    """`reconcile` is for the workers of *queue*, whose keys are uids of nodes; *ended* is called with the uid after it.

    A worker waits for the cloud, which serves many of them with a call.
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
        self._lines = {
            action: Line(AT_A_TIME, queue.add) for action in (Action.ALLOCATE, Action.BIND, Action.UNBIND)
        }
        self._refused: set[str] = set()

    def reconcile(self, uid: str) -> float | None:
        self._refused.discard(uid)
        is_in_line = False
        try:
            with self._memory.locks.held(self._reader.instances(uid)):
                snapshot, step = self._decide(uid)
                if step.action in self._lines and not self._lines[step.action].enter(uid):
                    is_in_line = True
                    return PENDING  # it is queued, and decides again, when it is its turn
                return self._act(snapshot, step)
        except Busy:
            return BUSY
        except RetryAfter as later:
            self._refused.add(uid)
            return later.seconds
        except (CloudError, KubeError, StillThere):
            self._queue.retry(uid)
            return PENDING
        finally:
            for line in () if is_in_line else self._lines.values():
                line.leave(uid)
            self._ended(uid)

    def try_refused(self) -> None:
        """Reconcile the nodes that were refused: what stood in their way may be over."""
        for uid in list(self._refused):
            self._queue.add(uid)

    def _decide(self, uid: str) -> tuple[Snapshot, Step]:
        """Plan, ask the cloud what the plan needs, and plan again."""
        settings, asked = self._settings(), set[Action]()
        snapshot = self._reader.local(uid)
        while (step := self._plan(snapshot, settings)).action in READS and step.action not in asked:
            asked.add(step.action)
            snapshot = self._reported(
                snapshot, step.action, partial(self._reader.read, snapshot, step.action)
            )
        self._memory.brake.note(uid, is_held=step.action is Action.EXAMINE)
        self._reporter.planned(snapshot, step, settings)
        return snapshot, step

    def _plan(self, snapshot: Snapshot, settings: AnycastIPSettings) -> Step:
        """Before the cluster's addresses were read once, nothing is known well enough to act on."""
        step, error = plan(snapshot, settings), self._inventory.error
        if self._inventory.read_at is not None or step.action in WITHOUT_INVENTORY:
            return step
        return Step(Action.NOTHING, refusal("FailedAllocateAnycastIp", error) if error else None)

    def _act(self, snapshot: Snapshot, step: Step) -> float | None:
        if step.action is Action.NOTHING:
            self._rest(snapshot)
            return None
        if step.action in READS:
            return self._memory.waits.again(snapshot.uid, step.action)
        again = self._reported(snapshot, step.action, partial(self._actions[step.action], snapshot, step))
        self._reporter.done(snapshot, step)
        self._pass_on(snapshot, step)
        return again

    def _pass_on(self, snapshot: Snapshot, step: Step) -> None:
        """Reconcile the others that the change concerns."""
        if step.action is Action.KEEP:
            self.try_refused()
        elif step.action is Action.INHERIT and snapshot.related.predecessor:
            self._queue.add(snapshot.related.predecessor.uid)
        elif step.action is Action.TAKE and snapshot.pool.offer:
            self._queue.add(snapshot.pool.offer.uid)

    def _rest(self, snapshot: Snapshot) -> None:
        if snapshot.node is None and snapshot.claim is None:
            self._memory.forget(snapshot.uid)
            self._nodes.wanted.discard(snapshot.uid)
            self._reporter.forget(snapshot.uid)
        if snapshot.related.heir:
            self._queue.add(snapshot.related.heir)

    def _reported(self, snapshot: Snapshot, action: Action, work: Callable[[], T]) -> T:
        try:
            return work()
        except (LeadershipLost, Stopping, Busy):
            raise
        except Exception as error:
            failures = max(
                self._queue.failures(snapshot.uid) + 1, self._memory.waits.attempts(snapshot.uid, action)
            )
            self._reporter.failure(snapshot, action, error, failures)
            raise


class Actions:
    def __init__(self, sources: Sources, memory: Memory, cloud: BatchedCloud) -> None:
        self._nodes, self._claims, self._inventory = sources.nodes, sources.claims, sources.inventory
        self._settings, self._clocks = sources.settings, sources.clocks
        self._memory, self._cloud = memory, cloud
        self._settle = SETTLE
        self.by_name: Mapping[Action, Run] = {
            Action.CLAIM: self._claim,
            Action.ADOPT: self._adopt,
            Action.INHERIT: self._inherit,
            Action.TAKE: self._take,
            Action.KEEP: self._keep,
            Action.RECORD: self._record,
            Action.RENEW: self._renew,
            Action.FORGET: self._forget,
            Action.RESIZE: self._resize,
            Action.TAG: self._tag,
            Action.ALLOCATE: self._allocate,
            Action.ANNOUNCE: self._announce,
            Action.BIND: self._bind,
            Action.UNBIND: self._unbind,
            Action.RELEASE: self._release,
            Action.UNTAG: self._untag,
            Action.CHECK: self._check,
            Action.OPEN: self._open,
            Action.CLOSE: self._close,
            Action.STRIP: self._strip,
            Action.FREE: self._free,
        }

    def _claim(self, snapshot: Snapshot, _: Step) -> float:
        self._claims.put_order(self._new_claim(snapshot))
        return 0.0

    def _renew(self, snapshot: Snapshot, _: Step) -> float:
        self._forget_address(snapshot)
        claim, node = claim_in(snapshot), snapshot.node
        terms = terms_for(node, self._settings()) if node else claim.terms
        self._claims.put_order(renewed(claim, self._clocks.now(), terms))
        return 0.0

    def _new_claim(self, snapshot: Snapshot) -> Claim:
        return claim_for(node_in(snapshot), self._settings(), self._clocks.now())

    def _adopt(self, snapshot: Snapshot, step: Step) -> float:
        if step.address:
            claim = self._new_claim(snapshot)
            self._claims.put(with_address(claim, step.address, self._inventory.cluster_uuid))
            log.info("address adopted", node=claim.node, uid=claim.uid, address=step.address.id)
        return 0.0

    def _inherit(self, snapshot: Snapshot, _: Step) -> float:
        """The new claim comes first: of two with the same address, the one without a node is just dropped."""
        if before := snapshot.related.predecessor:
            self._claims.put(inherited(before, node_in(snapshot)))
            self._claims.drop(before.uid)
        return 0.0

    def _take(self, snapshot: Snapshot, _: Step) -> float:
        """As in an inheritance, the new claim comes first. No other reconcile is about the offer meanwhile."""
        offer = offer_in(snapshot)
        with self._memory.locks.held({locked_by(offer)}):
            if self._claims.get(offer.uid) != offer:
                raise Busy(offer.address)
            claim = taken(offer, snapshot.claim or replace(self._new_claim(snapshot), tags=()))
            self._claims.put(claim)
            self._claims.drop(offer.uid)
        self._claims.end_order(claim.token)
        log.info("address taken from the pool", node=claim.node, uid=claim.uid, address=claim.address)
        return 0.0

    def _keep(self, snapshot: Snapshot, step: Step) -> float:
        claim = self._confirmed(snapshot)
        ip = step.address.ip if step.address else ""
        self._claims.put(replace(claim, pooled=self._clocks.now(), ip=ip))
        log.info("address kept in the pool", node=claim.node, uid=claim.uid, address=claim.address)
        return 0.0

    def _record(self, snapshot: Snapshot, step: Step) -> float:
        if step.address:
            self._claims.put(replace(claim_in(snapshot), address=step.address.id, ip=step.address.ip))
        return 0.0

    def _forget(self, snapshot: Snapshot, _: Step) -> float:
        self._forget_address(snapshot)
        self._claims.drop(snapshot.uid)
        return 0.0

    def _forget_address(self, snapshot: Snapshot) -> None:
        address = claim_in(snapshot).address
        self._inventory.spend(address)
        self._inventory.released.discard(address)
        self._memory.waits.end(snapshot.uid)
        self._memory.egress.end(snapshot.uid)

    def _resize(self, snapshot: Snapshot, _: Step) -> float:
        claim, waits = claim_in(snapshot), self._memory.waits
        bandwidth = wanted_bandwidth(node_in(snapshot), self._settings())
        if left := waits.left(claim.uid, Action.RESIZE, f"{claim.address} {bandwidth}"):
            return left
        pause = waits.again(claim.uid, Action.RESIZE)
        self._cloud.set_bandwidth(claim.address, bandwidth)
        log.info("bandwidth set", node=claim.node, uid=claim.uid, address=claim.address, bandwidth=bandwidth)
        return pause

    def _tag(self, snapshot: Snapshot, _: Step) -> float:
        self._cloud.create_tags(snapshot.uid, self._order(claim_in(snapshot)).tags.items())
        return 0.0

    def _order(self, claim: Claim) -> Order:
        return order_for(claim, self._settings(), self._inventory.cluster_uuid)

    def _allocate(self, snapshot: Snapshot, _: Step) -> float:
        """Whatever the answer, the order counts as made, but for the refusals that leave no doubt."""
        claim = claim_in(snapshot)
        was_in_doubt = claim.token not in self._claims.unsent
        self._claims.unsent.discard(claim.token)
        self._memory.waits.end(snapshot.uid, Action.FIND)
        try:
            address = self._cloud.allocate(self._order(claim))
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

    def _announce(self, snapshot: Snapshot, _: Step) -> float:
        """What is being released is not listed, and would wait forever."""
        self._stays(claim_in(snapshot))
        return snapshot.announcement.left(self._clocks.now()) if snapshot.announcement else 0.0

    def _stays(self, claim: Claim) -> None:
        self._inventory.released.discard(claim.address)
        if claim.releasing or claim.pooled:  # it was not released after all
            self._claims.put(replace(claim, releasing=False, pooled=None))

    def _bind(self, snapshot: Snapshot, _: Step) -> float:
        claim, waits = claim_in(snapshot), self._memory.waits
        if left := waits.left(claim.uid, Action.BIND, claim.address):
            return left
        self._stays(claim)
        waits.again(claim.uid, Action.BIND)
        self._memory.egress.end(claim.uid)
        self._cloud.associate(claim.address, claim.instance)
        return FIRST_WATCH

    def _unbind(self, snapshot: Snapshot, _: Step) -> float:
        claim = self._confirmed(snapshot)
        if snapshot.runs and not self._memory.brake.take(claim.address):
            raise Busy(claim.instance)
        self._cloud.disassociate(claim.address)
        return FIRST_WATCH

    def _release(self, snapshot: Snapshot, _: Step) -> float:
        """What the cloud does not know may be in another account: that is no release."""
        claim = self._confirmed(snapshot)
        if not claim.releasing:
            self._claims.put(replace(claim, releasing=True))
        with suppress(Gone):
            self._cloud.release(claim.address)
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

    def _untag(self, snapshot: Snapshot, _: Step) -> float:
        """Delete the tags and the claim. Tags that another claim or another cluster uses stay."""
        claim, uid, waits = claim_in(snapshot), snapshot.uid, self._memory.waits
        waited = waits.seconds(uid, Action.RELEASE, claim.address)
        if waited < self._settle:
            return self._settle - waited
        tags = {tag for tag in claim.tags if not self._is_needed(tag, claim)}
        in_use = self._cloud.delete_tags(uid, sorted(tags))
        self._adapt(uid, waited, refused=bool(in_use))
        if kept := in_use.keys() - self._of_others(uid, in_use):
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
        elif not self._memory.waits.times(uid, Action.UNTAG):
            self._settle = min(LONGEST_SETTLE, max(self._settle, 2 * waited))

    def _of_others(self, uid: str, tags: Collection[Tag]) -> set[Tag]:
        """Of tags that cannot be deleted for long, those that only addresses of others carry."""
        if self._memory.waits.times(uid, Action.UNTAG) < LAGS:
            return set()
        return {
            tag
            for tag, carriers in self._cloud.carriers(tags).items()
            if carriers and all(self._is_of_others(carrier) for carrier in carriers)
        }

    def _is_of_others(self, carrier: Address) -> bool:
        """Of another cluster, or of a user who has moved it: it exists, and no claim has it any more."""
        if carrier.tags.get(CLUSTER_UUID) != self._inventory.cluster_uuid:
            return True
        return not self._claims.having(carrier.id) and self._cloud.address(carrier.id) is not None

    def _untag_later(self, uid: str, tags: Collection[Tag]) -> float:
        waits = self._memory.waits
        pause = waits.again(uid, Action.UNTAG)
        if waits.times(uid, Action.UNTAG) > LAGS:
            error = StateConflict("Attached", f"tags {set(tags)} are in use", action="DeleteTags")
            raise RetryAfter(error, pause)
        return pause

    def _check(self, snapshot: Snapshot, step: Step) -> float | None:
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

    def _open(self, snapshot: Snapshot, step: Step) -> float | None:
        if step.address is None:
            return None
        node = node_in(snapshot)
        # What it shows may be renewed while it is open.
        history = self._history(node, OPEN, step.address.id) if is_tainted(node) else {}
        self._nodes.write(node, {**bound_annotations(node, step.address), **history})
        self._memory.waits.end(snapshot.uid)
        is_right = wanted_bandwidth(node, self._settings()) in (0, step.address.bandwidth)
        return None if is_right else 0.0

    def _close(self, snapshot: Snapshot, _: Step) -> float:
        node = node_in(snapshot)
        lost = node.metadata.annotations.get(ADDRESS_ID, "")
        history = {} if is_tainted(node) else self._history(node, CLOSED, lost)
        self._nodes.write(node, {**UNMARKED, **history}, TAINT)
        log.warning("open node without its address tainted", node=snapshot.name, uid=snapshot.uid)
        return 0.0

    def _history(self, node: Node, to: str, address: str) -> Mapping[str, str]:
        return with_transition(node, self._clocks.now(), to, address)

    def _strip(self, snapshot: Snapshot, _: Step) -> float:
        self._nodes.write(node_in(snapshot), {**UNMARKED, HISTORY: None})
        self._nodes.wanted.discard(snapshot.uid)
        return 0.0

    def _free(self, snapshot: Snapshot, _: Step) -> float:
        self._nodes.write(node_in(snapshot), {})
        return 0.0
