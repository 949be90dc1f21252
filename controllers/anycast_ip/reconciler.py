"""Reconcile one node at a time, each as if it were the only one: read a snapshot, plan the next action, run it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice

import structlog
from msgspec.structs import replace

from api.anycast_ip import (
    ADDRESS,
    ADDRESS_ID,
    BOUND,
    CLOSED,
    HAS_ONE,
    HISTORY,
    NONE,
    OPEN,
    TAINT,
    is_open,
    is_open_without,
    is_tainted,
    proof,
    wanted,
    with_transition,
)
from cloud.batched import BatchedCloud
from cloud.errors import (
    NO_BALANCE,
    CloudError,
    Gone,
    QuotaExceeded,
    Rejected,
    RetryAfter,
    StateConflict,
    TagMissing,
    TokenRefused,
)
from cloud.types import BIND, BIND_ENI, UNBIND, Address, Tag
from cloud.types import Order as CloudOrder
from controllers.anycast_ip.claim import (
    CLUSTER_UUID,
    NODE_INSTANCE,
    ORPHAN,
    POOL,
    POOLED,
    Claim,
    bound_to,
    claim_for,
    inherited,
    instance_of,
    is_offered,
    is_paid_as,
    is_usable,
    order_for,
    renewed,
    taken,
    terms_for,
    wanted_bandwidth,
    with_address,
)
from controllers.anycast_ip.memory import BUSY, Busy, Line, Memory, locked_by
from controllers.anycast_ip.planner import (
    EXHAUSTED,
    bound_annotations,
    has_left,
    is_leaving,
    plan,
    refused_since,
    serves,
)
from controllers.anycast_ip.pool import has_place, in_line, without_place
from controllers.anycast_ip.reporter import Reporter, StillThere, refusal
from controllers.anycast_ip.snapshot import (
    GONE,
    READS,
    UNKNOWN,
    Action,
    Order,
    Pool,
    Related,
    Seen,
    Snapshot,
    Step,
    Unseen,
    present,
)
from controllers.anycast_ip.sources import Sources
from controllers.workqueue import PENDING, Stopping, WorkQueue
from kube.errors import KubeError
from kube.leader_election import LeadershipLost
from kube.types import Node
from settings import AnycastIPSettings

ABSENT, ALONE = 60.0, 900.0
"""Seconds for which an address must be missing before it counts as gone: while others of the cluster are bound, or its
release has begun; and while none is bound. Then its instance, or that of a node, must be known to the cloud."""
UNPROVEN = 3600.0
"""The same for a release that has begun while no node names an instance: nothing is left to show the account by. Tags,
which cost nothing, then wait for ALONE."""
ENDING = ("STOPPING", "STOPPED", "SHUTDOWN", "TERMINATING", "LAUNCH_FAILED")
"""States of an instance that a node pool has been scaled in by."""
WITNESSES = 10
"""Nodes whose instances are looked up: any of them shows that this is the right account and region."""
AGAIN = 60.0
SLIP = 3600.0
"""Seconds for which a change of what is ordered may be a slip: what is idle, and serves no node now, stays so long."""
WITHOUT_INVENTORY = (Action.NOTHING, Action.CLOSE, Action.FREE)
"""Actions for which no address has to be known."""

AT_A_TIME = 24
"""Nodes that decide and act at a time where the cloud's API has no batches: enough that none is missed at its rate, and
few, so that no decision is older than their part in its line."""

TASKS = (Action.BIND, Action.UNBIND, Action.RELEASE)
"""What the cloud accepts, and may fail at later: it is paced."""
ENDS = {BIND: Action.BIND, BIND_ENI: Action.BIND, UNBIND: Action.UNBIND}
"""By the status that shows it."""
FIRST_WATCH = 0.7
LISTED = 10.0
"""Seconds from one look whether an address is listed to the next; its node is queued when it was written, too."""
LAGS = 4
"""Refusals to delete a tag that the index of tags may explain; after them its carriers are read."""
SETTLE = 2.0
"""Seconds from the end of an address until its tags can be deleted, as a rule."""
UNMARKED: Mapping[str, str | None] = {ADDRESS_ID: None, ADDRESS: None, BOUND: None}

log = structlog.stdlib.get_logger(__name__)


class NotBelieved(Exception):
    """An address or tag is missing, and so is what would show that this is the right account, region and time."""


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
        self._nodes, self._claims = sources.nodes, sources.claims
        self._inventory, self._settings = sources.inventory, sources.settings
        self._reader, self._actions = Reader(sources, memory, cloud), Actions(sources, memory, cloud)
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
        except (CloudError, KubeError, StillThere) as error:
            self._queue.retry(uid, error)
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
            try:
                with self._reporting(snapshot, step.action):
                    snapshot = self._reader.read(snapshot, step.action)
            except (CloudError, RetryAfter):
                self._reporter.unanswered(snapshot, step, settings)
                raise
        self._reporter.planned(snapshot, step, settings)
        return snapshot, step

    def _plan(self, snapshot: Snapshot, settings: AnycastIPSettings) -> Step:
        """Before the cluster's addresses were read once, nothing is known well enough to act on."""
        step, error = plan(snapshot, settings), self._inventory.error
        if self._inventory.read_at is not None or step.action in WITHOUT_INVENTORY:
            return step
        return Step(Action.NOTHING, refusal("FailedAllocateAnycastIp", error) if error else None)

    def _act(self, snapshot: Snapshot, step: Step) -> float | None:
        uid, related = snapshot.uid, snapshot.related
        if step.action is Action.NOTHING:
            if snapshot.node is None and snapshot.claim is None:
                self._memory.forget(uid)
                self._nodes.wanted.discard(uid)
                self._reporter.forget(uid)
            if related.heir:
                self._queue.add(related.heir)
            return self._claims.unsettled(uid)
        if step.action in READS:
            return self._memory.waits.again(uid, step.action)
        with self._reporting(snapshot, step.action):
            again = self._actions.run(snapshot, step)
        self._reporter.done(snapshot, step)
        if step.action is Action.KEEP:
            self.try_refused()
        if former := {Action.INHERIT: related.predecessor, Action.TAKE: snapshot.pool.offer}.get(step.action):
            self._queue.add(former.uid)
        if step.action is Action.TAG:
            self._queue.add(uid)
            return PENDING  # an order that finds them missing each time counts as failing
        return 0.0 if again is None and step.action is not Action.OPEN else again

    @contextmanager
    def _reporting(self, snapshot: Snapshot, action: Action) -> Iterator[None]:
        try:
            yield
        except (LeadershipLost, Stopping, Busy):
            raise
        except Exception as error:
            # Between two attempts at these, reconciles only see that the pause is not over.
            is_paced = action in (*TASKS, Action.RESIZE)
            attempts = self._memory.waits.times(snapshot.uid, action) if is_paced else 0
            failures = max(self._queue.failures(snapshot.uid) + 1, attempts)
            self._reporter.failure(snapshot, action, error, failures)
            raise


class _Parts:
    """What a reconcile reads and changes."""

    def __init__(self, sources: Sources, memory: Memory, cloud: BatchedCloud) -> None:
        self._nodes, self._claims, self._inventory = sources.nodes, sources.claims, sources.inventory
        self._sources, self._settings, self._clocks = sources, sources.settings, sources.clocks
        self._memory, self._cloud = memory, cloud

    def _is_our_account(self, claim: Claim) -> bool | None:
        """Whether the keys and the region show an instance of the cluster; None where no node names one."""
        witnesses = list(islice(filter(None, map(instance_of, self._nodes.list())), WITNESSES))
        own = () if claim.instance == POOL else (claim.instance,)
        if any(state is not None for state in self._cloud.instance_states(dict.fromkeys((*own, *witnesses)))):
            return True
        return False if witnesses else None

    def _order_for(self, claim: Claim) -> CloudOrder:
        return order_for(claim, self._settings(), self._inventory.cluster_uuid)


class Reader(_Parts):
    """Read the snapshot of one node: first what is at hand, then, as the plan asks for it, what the cloud says."""

    def instances(self, uid: str) -> set[str]:
        """Those that a reconcile of *uid* may change an address of, once it is known what its claim is. KubeError."""
        self._claims.settle(uid)
        node, claim = self._nodes.get(uid), self._claims.get(uid)
        named = {instance_of(node)} if node and wanted(node, self._settings()) else set()
        return (named | {locked_by(claim)} if claim else named) - {""}

    def local(self, uid: str) -> Snapshot:
        """Without a question to the cloud."""
        node, claim = self._nodes.get(uid), self._claims.get(uid)
        if node and wanted(node, self._settings()):
            self._nodes.wanted.add(uid)
        if not node or not is_tainted(node) or uid not in self._nodes.wanted:
            self._memory.egress.end(uid)  # it belongs to one wait of the node
        related, seen, pool = self._related(node, claim), self._listed(node, claim), self._pool(node, claim)
        order = self._order(node, claim) if claim and not claim.address else Order()
        seconds = self._settings().allow_list.wait
        announcement = self._memory.announcements.of(claim.address, seconds) if claim and seconds else None
        egress = self._memory.egress.of(uid)
        return Snapshot(uid, node, claim, related, order, seen, pool, announcement, egress)

    def _pool(self, node: Node | None, claim: Claim | None) -> Pool:
        settings, now = self._settings(), self._clocks.now()
        if claim and not node:
            kind = f"{settings.address_type} {terms_for(None, settings)}"
            unchanged = self._memory.waits.seconds(claim.uid, Action.KEEP, kind)
            is_there = has_place(claim, self._claims.having(POOLED), settings.pool, now)
            return Pool(has_place=is_there, stays_anyway=not claim.lent and unchanged < SLIP)
        if not node or (claim and claim.address):
            return Pool()
        idle = in_line(self._claims.having(POOLED))
        return Pool(offer=next((each for each in idle if self._is_free(each, node)), None))

    def _is_free(self, offer: Claim, node: Node) -> bool:
        """Whether *node* may have it: no other claim has it yet, and no new node is on its former instance.

        With one way to pay for all, what was ordered before it was configured is good enough.
        """
        settings, seen = self._settings(), self._inventory.last_read(offer.address)
        if len(self._claims.having(offer.address)) > 1 or self._heir(offer):
            return False
        is_returned = seen is not None and offer.lent and not is_offered(seen, settings.pool)
        if seen and (is_returned or not is_usable(seen, settings)):
            return False
        return not settings.addresses or is_paid_as((seen or offer).terms, terms_for(node, settings))

    def read(self, snapshot: Snapshot, action: Action) -> Snapshot:
        """*snapshot* with the answer to what *action* asks, and the pool as it is by then. CloudError, RetryAfter."""
        claim, seen = snapshot.claim, snapshot.seen
        if action is Action.LOOK and snapshot.node:
            instance = claim.instance if claim else instance_of(snapshot.node)
            found = self._cloud.addresses_on(instance)
            if not (found or claim or is_tainted(snapshot.node)):
                self._believe_empty(instance, snapshot.node)
            owners = (self._user_of(each.id) for each in found if bound_to(each))
            owner = next((each.node for each in owners if each), "")
            is_replaced = claim is not None and any(map(self._is_unclaimed, found))
            seen = dataclasses.replace(seen, on_instance=found, owner=owner, is_replaced=is_replaced)
            snapshot = dataclasses.replace(snapshot, seen=seen)
        elif claim and action is Action.FIND:
            snapshot = dataclasses.replace(snapshot, order=self._looked_up(snapshot.order, claim))
        elif claim and action is Action.EXAMINE:
            is_braked = self._memory.brake.holds(claim.address)
            snapshot = dataclasses.replace(snapshot, runs=self._runs(claim), is_braked=is_braked)
        elif claim:
            snapshot = dataclasses.replace(snapshot, seen=self._watch(claim))
        return dataclasses.replace(snapshot, pool=self._pool(snapshot.node, claim))

    def _believe_empty(self, instance: str, node: Node) -> None:
        """An open node that no claim knows, as one of the original, is not closed where its *instance* is unknown."""
        if self._cloud.instance_states([instance]) == [None]:
            shown = node.metadata.annotations.get(ADDRESS_ID, "its address")
            text = f"neither {shown} nor {instance} is listed: check cloud.region and the keys, or delete the node"
            raise RetryAfter(NotBelieved(text), AGAIN)

    def _related(self, node: Node | None, claim: Claim | None) -> Related:
        related = Related(was_wanted=node is not None and node.metadata.uid in self._nodes.wanted)
        if claim:
            if not self._is_leaving(claim):
                user = None if claim.address else self._user_of(claim.instance)
                return dataclasses.replace(related, rival=user) if user and user.uid != claim.uid else related
            heir, elsewhere = self._heir(claim), self._is_elsewhere(claim)
            return dataclasses.replace(related, heir=heir, elsewhere=elsewhere)
        if node is None or not (instance := instance_of(node)):
            return related
        # One that is claimed by no node, and is there or free.
        listed = self._inventory.unspent((node.metadata.name, instance))
        free = [each for each in listed if bound_to(each) in ("", instance)]
        found = next((each for each in free if not self._claims.having(each.id)), None)
        related, settings = dataclasses.replace(related, found=found), self._settings()
        if not wanted(node, settings):
            return related
        left = [
            each
            for each in self._claims.having(instance)
            if self._is_idle(each) or has_left(self._nodes.get(each.uid), each, settings)
        ]
        predecessor = max(left, key=lambda each: each.asked, default=None)
        return dataclasses.replace(related, predecessor=predecessor, rival=self._user_of(instance))

    def _is_leaving(self, claim: Claim) -> bool:
        return is_leaving(self._nodes.get(claim.uid), claim, self._settings())

    def _is_idle(self, claim: Claim) -> bool:
        """Whether its node has no labels, and its instance, as far as is known, not its address any more."""
        node, listed = self._nodes.get(claim.uid), self._inventory.addresses.get(claim.address)
        if node is None or wanted(node, self._settings()):
            return False
        return bound_to(listed) != claim.instance if listed else claim.address not in self._inventory.ips()

    def _user_of(self, value: str) -> Claim | None:
        """The claim of a node that stays, which has this instance or address: of several, which should be one."""
        there = self._claims.having(value)
        staying = (each for each in there if not self._is_leaving(each) and not self._is_idle(each))
        return min(staying, key=lambda each: (not each.address, each.asked, each.uid), default=None)

    def _heir(self, claim: Claim) -> str:
        """The uid of a node that takes *claim* over: the only one on its instance, as far as claims say."""
        if self._user_of(claim.instance):
            return ""
        there = self._nodes.on_instance(claim.instance)
        heirs = [each.metadata.uid for each in there if wanted(each, self._settings())]
        return next((each for each in heirs if self._claims.get(each) is None), "")

    def _is_elsewhere(self, claim: Claim) -> bool:
        """Whether another claim to the same address, or order, remains: a death during an inheritance leaves two.

        Of two claims that leave, the one with the greater uid remains, but first one that has left the pool.
        """

        def precedence(each: Claim) -> tuple[bool, str]:
            return each.pooled is None, each.uid

        others = self._claims.having(claim.address or claim.token)
        return any(precedence(each) > precedence(claim) or not self._is_leaving(each) for each in others)

    def _order(self, node: Node | None, claim: Claim) -> Order:
        is_needed = node is not None or claim.node == POOL
        waits, ordering = self._memory.waits, (claim.uid, Action.ALLOCATE)
        return Order(
            age=(self._clocks.now() - claim.asked).total_seconds(),
            outdated=is_needed and claim.terms != terms_for(node, self._settings()),
            in_doubt=claim.token not in self._claims.unsent,
            refused=claim.token in self._claims.refused,
            put_off=waits.times(*ordering) > 0 and not waits.left(*ordering, ""),
            exhausted=claim.token in self._claims.exhausted,
            tagged=self._cloud.has_tags(self._order_for(claim).tags.items()),
        )

    def _listed(self, node: Node | None, claim: Claim | None) -> Seen:
        """For a node that is not open, a list that may be old proves nothing."""
        if not node or not claim or not is_open(node):
            return Seen()
        listed, width = self._inventory.addresses.get(claim.address), wanted_bandwidth(node, self._settings())
        is_right = listed and serves(listed, claim.instance) and width in (0, listed.terms.bandwidth)
        return Seen(listed) if listed and is_right else Seen()

    def _looked_up(self, order: Order, claim: Claim) -> Order:
        """By its name: if there are several, not what an earlier order brought, and was given up."""
        mine = [
            each
            for each in self._cloud.named(claim.name)
            if each.tags.get(NODE_INSTANCE) == claim.instance
            and bound_to(each) in ("", claim.instance)
            and not self._claims.having(each.id)
        ]
        if mine:
            return dataclasses.replace(order, found=min(mine, key=self._inventory.is_spent))
        waited = self._memory.waits.seconds(claim.uid, Action.FIND, claim.token)
        return dataclasses.replace(order, nothing_for=waited)

    def _watch(self, claim: Claim) -> Seen:
        waits, seen = self._memory.waits, self._cloud.address(claim.address)
        if seen is None:
            return Seen(self._missing(claim))
        before, settings = self._inventory.last_read(claim.address), self._settings()
        self._inventory.note(seen)
        if claim.pooled and before and not is_usable(before, settings) and is_usable(seen, settings):
            self._sources.enqueue_all()  # nodes may wait for it
        if ended := ENDS.get(seen.status):
            waits.end(claim.uid, ended)
        return Seen(
            seen,
            seconds=waits.seconds(claim.uid, Action.WATCH, seen.status),
            resists=waits.times(claim.uid, Action.BIND) > 1,
        )

    def _is_unclaimed(self, address: Address) -> bool:
        """Whether it will do and is bound though no claim has it: a backup may be older, or a user has bound it."""
        is_ours = address.tags.get(CLUSTER_UUID) == self._inventory.cluster_uuid
        does = is_ours or is_usable(address, self._settings())
        return does and address.status in (BIND, BIND_ENI) and not self._claims.having(address.id)

    def _missing(self, claim: Claim) -> Unseen:
        """An address that is not listed may be there: the list may be empty by mistake, or another account's."""
        if claim.address in self._inventory.released:
            return GONE
        # One that is lent would be adopted again.
        if claim.lent and claim.pooled and self._is_our_account(claim) is not False:
            return GONE
        missing = self._memory.waits.seconds(claim.uid, Action.WATCH, UNKNOWN.value)
        if missing < ABSENT:
            return UNKNOWN
        if not self._inventory.want_newer(self._memory.waits.now() - missing + ABSENT):
            if self._inventory.error:
                raise _not_believed(claim, self._inventory.error)
            return UNKNOWN
        if self._is_certain(claim, missing):
            return GONE
        raise _not_believed(claim)

    def _is_certain(self, claim: Claim, missing: float) -> bool:
        listed = self._inventory.addresses
        # Some may have been ordered with the keys of another account, whose addresses are bound to no instance of ours.
        if claim.address in listed or any(map(bound_to, listed.values())):
            return claim.address not in listed
        if missing < ALONE and not claim.releasing:
            return False
        try:
            is_ours = self._is_our_account(claim)
        except (CloudError, RetryAfter) as error:
            raise _not_believed(claim, error) from error
        return bool(is_ours) or (is_ours is None and claim.releasing and missing >= UNPROVEN)

    def _runs(self, claim: Claim) -> bool:
        """Whether the instance of *claim* does, as far as is known."""
        try:
            (state,) = self._cloud.instance_states([claim.instance])
        except (CloudError, RetryAfter):
            return True
        return state is not None and state not in ENDING


def _not_believed(claim: Claim, why: Exception | str = "") -> RetryAfter:
    error = NotBelieved(
        f"{claim.address} is not listed, but neither is any other address or instance of the cluster, so it does not"
        " count as gone: check that cloud.region and the keys are those it was ordered with"
        + (f": {why}" if why else "")
    )
    return RetryAfter(error, AGAIN)


class Actions(_Parts):
    """Run one action, on the claim, the cloud or the node: each by the method that has its name.

    It returns the seconds until the next look, or raises what prevents it. None is at once, but after the opening of a
    node, whose bandwidth is right, there is nothing more to do.
    """

    def run(self, snapshot: Snapshot, step: Step) -> float | None:
        method = self._paced if step.action in TASKS else self._method(step.action)
        return method(snapshot, step)

    def _method(self, action: Action) -> Callable[[Snapshot, Step], float | None]:
        method: Callable[[Snapshot, Step], float | None] = getattr(self, f"_{action.name.lower()}")
        return method

    def _claim(self, snapshot: Snapshot, _: Step) -> None:
        self._claims.put_order(self._new_claim(snapshot))

    def _renew(self, snapshot: Snapshot, _: Step) -> None:
        claim, node = present(snapshot.claim), snapshot.node
        new = renewed(claim, self._clocks.now(), terms_for(node, self._settings()))
        if node and is_open_without(node):  # and stays so
            new = replace(new, refused=claim.refused)
        self._claims.put_order(new)
        self._forget_address(snapshot)

    def _new_claim(self, snapshot: Snapshot) -> Claim:
        return claim_for(present(snapshot.node), self._settings(), self._clocks.now())

    def _adopt(self, snapshot: Snapshot, step: Step) -> None:
        claim, address = self._new_claim(snapshot), present(step.address)
        self._claims.put(with_address(claim, address, self._inventory.cluster_uuid))
        log.info("address adopted", node=claim.node, uid=claim.uid, address=address.id)

    def _inherit(self, snapshot: Snapshot, _: Step) -> None:
        """The new claim comes first: of two with the same address, the one without a node is just dropped."""
        if before := snapshot.related.predecessor:
            self._claims.put(inherited(before, present(snapshot.node)))
            self._claims.drop(before.uid)

    def _take(self, snapshot: Snapshot, _: Step) -> None:
        """As in an inheritance, the new claim comes first. No other reconcile is about the offer meanwhile."""
        offer = present(snapshot.pool.offer)
        self._believe_lent(offer)
        claim = taken(offer, snapshot.claim or replace(self._new_claim(snapshot), tags=()))
        # An offer that was last on the instance of the node is held with that.
        with self._memory.locks.held({locked_by(offer)} - {claim.instance}):
            if self._claims.get(offer.uid) != offer:
                raise Busy(offer.address)
            self._claims.put(claim)
            self._claims.drop(offer.uid)

    def _believe_lent(self, offer: Claim) -> None:
        """Its user may have taken it back since it was read; Busy then."""
        if offer.lent and (seen := self._cloud.address(offer.address)):
            self._inventory.note(seen)
            if not is_offered(seen, self._settings().pool):
                self._sources.enqueue(offer.uid)
                raise Busy(offer.address)

    def _keep(self, snapshot: Snapshot, step: Step) -> None:
        claim, address = self._confirmed(snapshot), present(step.address)
        claim = self._without_idle_tags(claim, address)
        self._claims.put(replace(claim, pooled=self._clocks.now(), ip=address.ip))

    def _without_idle_tags(self, claim: Claim, address: Address) -> Claim:
        """*claim* without those of orders that were not needed: they would add up from one node to the next."""
        idle = {
            tag for tag in claim.tags if tag not in address.tags.items() and not self._is_needed(tag, claim)
        }
        with suppress(CloudError, RetryAfter):
            idle -= self._cloud.delete_tags(claim.uid, sorted(idle)).keys() if idle else set()
            return replace(claim, tags=tuple(tag for tag in claim.tags if tag not in idle))
        return claim

    def _record(self, snapshot: Snapshot, step: Step) -> None:
        address = present(step.address)
        self._claims.put(replace(present(snapshot.claim), address=address.id, ip=address.ip))

    def _record_labels(self, snapshot: Snapshot, _: Step) -> None:
        self._claims.put(replace(present(snapshot.claim), labels=self._settings().node_labels))

    def _forget(self, snapshot: Snapshot, step: Step) -> None:
        claim, seen = present(snapshot.claim), snapshot.seen
        has_tags_left = seen.address is GONE and step.action is Action.FORGET
        if not (claim.address and claim.ours and (seen.is_replaced or has_tags_left)):
            self._claims.drop(snapshot.uid)
        else:  # it would cost, or keep its tags, and be no orphan while its node is there
            rest = replace(claim, uid=f"{ORPHAN}{claim.address}", node=POOL, instance=POOL, labels={})
            # While both have the address, a reconcile of this one would give it up for the other.
            with self._memory.locks.held({locked_by(rest)}):
                self._claims.put(rest)
                self._claims.drop(snapshot.uid)
            self._sources.enqueue(rest.uid)
        self._forget_address(snapshot)

    def _forget_address(self, snapshot: Snapshot) -> None:
        """After the claim was written: until then, it has to be known that the address is gone."""
        address = present(snapshot.claim).address
        self._inventory.spend(address)
        self._inventory.released.discard(address)
        self._memory.forget(snapshot.uid)

    def _resize(self, snapshot: Snapshot, _: Step) -> float:
        claim, waits = present(snapshot.claim), self._memory.waits
        bandwidth = wanted_bandwidth(present(snapshot.node), self._settings())
        if left := waits.left(claim.uid, Action.RESIZE, f"{claim.address} {bandwidth}"):
            return left
        pause = waits.again(claim.uid, Action.RESIZE)
        self._cloud.set_bandwidth(claim.address, bandwidth)
        log.info("bandwidth set", node=claim.node, uid=claim.uid, address=claim.address, bandwidth=bandwidth)
        return pause

    def _tag(self, snapshot: Snapshot, _: Step) -> None:
        self._cloud.create_tags(snapshot.uid, self._order_for(present(snapshot.claim)).tags.items())

    def _allocate(self, snapshot: Snapshot, _: Step) -> float:
        """At once again when a quota has been used up for long enough."""
        self._believe_account(present(snapshot.claim))
        self._claims.exhausted.discard(present(snapshot.claim).token)
        try:
            return self._send_order(snapshot)
        except (CloudError, RetryAfter) as error:
            waits, ordering = self._memory.waits, (snapshot.uid, Action.ALLOCATE)
            if isinstance(error, RetryAfter) and not waits.left(*ordering, ""):
                waits.again(*ordering)
            cause = error.cause if isinstance(error, RetryAfter) else error
            by_quota = isinstance(cause, QuotaExceeded) and cause.code != NO_BALANCE
            self._note_refusal(snapshot, by_quota=by_quota)
            if present(snapshot.claim).token in self._claims.exhausted:
                return 0.0
            raise

    def _believe_account(self, claim: Claim) -> None:
        """What is ordered in another account is paid for, and what comes late in ours is then known to no claim."""
        try:
            is_ours = self._is_our_account(claim)
        except (CloudError, RetryAfter):  # as for want of a permission
            return
        if is_ours is False:
            text = "no instance of the cluster is listed, so no address is ordered: check cloud.region and the keys"
            raise RetryAfter(NotBelieved(text), AGAIN)

    def _note_refusal(self, snapshot: Snapshot, *, by_quota: bool) -> None:
        claim, node, now = present(snapshot.claim), snapshot.node, self._clocks.now()
        since = refused_since(claim, node, by_quota=by_quota, settings=self._settings(), now=now)
        if since != claim.refused:
            self._claims.put(replace(claim, refused=since))
        if by_quota and since and node and is_tainted(node) and now - since >= EXHAUSTED:
            self._claims.exhausted.add(claim.token)

    def _send_order(self, snapshot: Snapshot) -> float:
        """Whatever the answer, the order counts as made, but for the refusals that leave no doubt."""
        claim = present(snapshot.claim)
        was_in_doubt = claim.token not in self._claims.unsent
        self._claims.unsent.discard(claim.token)
        self._memory.waits.end(snapshot.uid, Action.FIND)
        try:
            address = self._cloud.allocate(self._order_for(claim))
        except TokenRefused:
            self._claims.refused.add(claim.token)
            raise
        except (RetryAfter, Rejected, TagMissing) as error:
            if not was_in_doubt:
                self._claims.unsent.add(claim.token)
            elif isinstance(error, Rejected):  # by what it says, which may be right in another one by now
                self._claims.refused.add(claim.token)
            raise
        self._claims.put(replace(claim, address=address))
        log.info("address allocated", node=claim.node, uid=claim.uid, address=address)
        return FIRST_WATCH

    def _announce(self, snapshot: Snapshot, _: Step) -> float:
        """What is being released is not listed, and would wait forever."""
        self._stays(present(snapshot.claim))
        until = snapshot.announcement.until if snapshot.announcement else None
        return max(0.0, (until - self._clocks.now()).total_seconds()) if until else LISTED

    def _stays(self, claim: Claim) -> None:
        self._inventory.released.discard(claim.address)
        if claim.releasing or claim.pooled:  # it was not released after all
            self._claims.put(replace(claim, releasing=False, pooled=None))

    def _paced(self, snapshot: Snapshot, step: Step) -> float:
        """Begin a task of the cloud, which accepts it and may fail later; StateConflict when it has done so before."""
        claim, action, waits = present(snapshot.claim), step.action, self._memory.waits
        if left := waits.left(claim.uid, action, claim.address):
            return left
        waits.again(claim.uid, action)
        self._method(action)(snapshot, step)
        if waits.accepted(claim.uid, action) > 1:
            text = f"{claim.address} is {present(step.address).status} again after each attempt"
            raise StateConflict("Unchanged", text, action=action)
        return FIRST_WATCH

    def _bind(self, snapshot: Snapshot, _: Step) -> None:
        claim = present(snapshot.claim)
        self._stays(claim)
        self._memory.egress.end(claim.uid)
        self._cloud.associate(claim.address, claim.instance)

    def _unbind(self, snapshot: Snapshot, _: Step) -> None:
        claim = self._confirmed(snapshot)
        if snapshot.runs and not self._memory.brake.take(claim.address):
            raise Busy(claim.instance)
        self._cloud.disassociate(claim.address)

    def _release(self, snapshot: Snapshot, _: Step) -> None:
        """What the cloud does not know may be in another account: that is no release."""
        claim = self._confirmed(snapshot)
        if not claim.releasing:
            self._claims.put(replace(claim, releasing=True))
        with suppress(Gone):
            self._cloud.release(claim.address)
            self._inventory.released.add(claim.address)
            log.info("address released", node=claim.node, uid=claim.uid, address=claim.address)

    def _confirmed(self, snapshot: Snapshot) -> Claim:
        """What cannot be undone rests on a fresh read: the node has left, and no newer one has its instance."""
        claim, settings = present(snapshot.claim), self._settings()
        node = self._nodes.read(claim.node) if claim.node != POOL else None
        if node and node.metadata.uid == claim.uid:
            stays = not is_leaving(node, claim, settings)
        else:
            stays = node is not None and instance_of(node) == claim.instance and wanted(node, settings)
        if stays:
            raise StillThere(f"the API server has node {claim.node}")
        return claim

    def _untag(self, snapshot: Snapshot, step: Step) -> float:
        """Delete the tags and the claim. Tags that another claim or another cluster uses stay."""
        claim, uid, waits = present(snapshot.claim), snapshot.uid, self._memory.waits
        waited = waits.seconds(uid, Action.UNTAG, claim.address)
        if waited < SETTLE:
            return SETTLE - waited
        tags = {tag for tag in claim.tags if not self._is_needed(tag, claim)}
        refused = self._cloud.delete_tags(uid, sorted(tags))
        if absent := sorted(tag for tag, error in refused.items() if isinstance(error, Gone)):
            # The keys may have been changed during the call: what counts is said between two proofs.
            self._believe_absent(claim, absent, waited)
            refused = {**refused, **self._cloud.delete_tags(uid, absent)}
            self._believe_absent(claim, absent, waited)
        in_use = {tag for tag, error in refused.items() if isinstance(error, StateConflict)}
        tries = waits.times(uid, Action.UNTAG)
        if kept := in_use - (self._of_others(in_use) if tries >= LAGS else set()):
            pause = waits.again(uid, Action.UNTAG)
            if tries < LAGS:
                return pause
            error = StateConflict("Attached", f"tags {kept} are in use", action="DeleteTags")
            raise RetryAfter(error, pause)
        self._forget(snapshot, step)
        return 0.0

    def _believe_absent(self, claim: Claim, tags: Collection[Tag], waited: float) -> None:
        is_ours = self._is_our_account(claim)
        if not (is_ours or (is_ours is None and waited >= ALONE)):
            error = NotBelieved(
                f"tags {tags} are not there, but neither is any instance of the cluster, so they do not count as"
                " deleted: check that cloud.region and the keys are those they were created with"
            )
            raise RetryAfter(error, AGAIN)

    def _is_needed(self, tag: Tag, claim: Claim) -> bool:
        """Of two claims that go, the one with the greater uid deletes the tags that both have."""
        pooled = self._claims.having(POOLED)
        going = without_place(pooled, self._settings().pool, self._clocks.now())
        staying = {each.uid for each in pooled} - going
        others = {each.uid for each in self._claims.having(tag)} - {claim.uid}
        return any(uid in staying or self._nodes.get(uid) or uid > claim.uid for uid in others)

    def _of_others(self, tags: Collection[Tag]) -> set[Tag]:
        """Of tags that cannot be deleted for long, those that only addresses of others carry."""
        cloud = self._inventory.cloud
        carriers = {(key, value): cloud.addresses_tagged(key, [value]) for key, value in tags}
        return {tag for tag, found in carriers.items() if found and all(map(self._is_of_others, found))}

    def _is_of_others(self, carrier: Address) -> bool:
        """Of another cluster, or of a user who has moved it: it exists, and no claim has it any more."""
        if carrier.tags.get(CLUSTER_UUID) != self._inventory.cluster_uuid:
            return True
        return not self._claims.having(carrier.id) and self._cloud.address(carrier.id) is not None

    def _check(self, snapshot: Snapshot, step: Step) -> float:
        """When the pod has ended, the node is reconciled again."""
        return self._memory.egress.check(present(snapshot.node), present(step.address))

    def _open(self, snapshot: Snapshot, step: Step) -> float | None:
        node, address, now = present(snapshot.node), present(step.address), self._clocks.now()
        # What it shows may be renewed while it is open.
        is_new = is_tainted(node) or is_open_without(node)
        history = with_transition(node, now, OPEN, address.id) if is_new else {}
        self._stays(present(snapshot.claim))  # another client may have bound it while it was being released
        self._nodes.write(node, {**bound_annotations(node, address), **history}, label=HAS_ONE)
        self._end_refusals(snapshot)
        self._memory.waits.end(snapshot.uid)
        is_right = wanted_bandwidth(node, self._settings()) in (0, address.terms.bandwidth)
        return None if is_right else 0.0

    def _open_without(self, snapshot: Snapshot, _: Step) -> None:
        node = present(snapshot.node)
        # Its label may be renewed while it is open.
        history = with_transition(node, self._clocks.now(), OPEN, "") if is_tainted(node) else {}
        self._nodes.write(node, {**UNMARKED, BOUND: proof(node, NONE), **history}, label=NONE)
        log.warning("node opened without an address", node=snapshot.name, uid=snapshot.uid)

    def _end_refusals(self, snapshot: Snapshot) -> None:
        """What comes later is another wait."""
        claim = self._claims.get(snapshot.uid)
        if claim and claim.refused:
            self._claims.put(replace(claim, refused=None))

    def _close(self, snapshot: Snapshot, _: Step) -> None:
        self._end_refusals(snapshot)
        node, now = present(snapshot.node), self._clocks.now()
        lost = node.metadata.annotations.get(ADDRESS_ID, "")
        history = {} if is_tainted(node) else with_transition(node, now, CLOSED, lost)
        self._nodes.write(node, {**UNMARKED, **history}, TAINT)
        log.warning("open node without its address tainted", node=snapshot.name, uid=snapshot.uid)

    def _strip(self, snapshot: Snapshot, _: Step) -> None:
        self._end_refusals(snapshot)
        self._nodes.write(present(snapshot.node), {**UNMARKED, HISTORY: None})
        self._nodes.wanted.discard(snapshot.uid)

    def _free(self, snapshot: Snapshot, _: Step) -> None:
        self._end_refusals(snapshot)
        self._nodes.write(present(snapshot.node), {})
