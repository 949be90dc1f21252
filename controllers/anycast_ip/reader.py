"""Read the snapshot of one node: first what is at hand, then, as the plan asks for it, what the cloud says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice

from api.anycast_ip import is_open, is_tainted, wanted
from cloud.batched import BatchedCloud
from cloud.errors import CloudError, RetryAfter
from cloud.types import BIND, BIND_ENI, Address
from controllers.anycast_ip.allow_list import Announcements
from controllers.anycast_ip.brake import Brake
from controllers.anycast_ip.claim import (
    NODE_INSTANCE,
    POOL,
    POOLED,
    Claim,
    bound_to,
    instance_of,
    is_paid_as,
    is_usable,
    order_for,
    terms_for,
    terms_of,
    terms_of_all,
    wanted_bandwidth,
)
from controllers.anycast_ip.egress import EgressChecks
from controllers.anycast_ip.planner import has_left, is_leaving, serves
from controllers.anycast_ip.pool import has_place, in_line, is_of_former_type, is_recent
from controllers.anycast_ip.snapshot import (
    GONE,
    UNKNOWN,
    Action,
    Announcement,
    Lookup,
    Order,
    Pool,
    Related,
    Seen,
    Snapshot,
    Unseen,
)
from controllers.anycast_ip.sources import Sources
from kube.errors import Backoff
from kube.types import Node
from runtime import threading

ABSENT, ALONE = 60.0, 900.0
"""Seconds for which an address must be missing before it counts as gone: while others of the cluster are listed, or its
release has begun; and while none is listed. Then its instance, or that of a node, must be known to the cloud."""
UNPROVEN = 3600.0
"""The same for a release that has begun while no node names an instance: nothing is left to show the account by."""
ENDING = ("STOPPING", "STOPPED", "SHUTDOWN", "TERMINATING", "LAUNCH_FAILED")
"""States of an instance that a node pool has been scaled in by."""
WITNESSES = 10
"""Nodes whose instances are looked up: any of them shows that this is the right account and region."""
AGAIN = 60.0
SLIP = 3600.0
"""Seconds for which a changed type of addresses may be a slip: what is idle, and of the former one, stays as long."""
NO_POOL = Pool()


POLLS = 5
"""So many in a row come at the same distance: a bind takes a few seconds."""
PAUSES = {
    Action.WATCH: Backoff(base=0.7, cap=10.0),
    Action.LOOK: Backoff(base=2.0, cap=60.0),
    Action.BIND: Backoff(base=2.0, cap=300.0),
    Action.FIND: Backoff(base=2.0, cap=30.0),
    # Until it runs no more, an operator confirms, or a period is over.
    Action.EXAMINE: Backoff(base=5.0, cap=300.0),
    # Until the cloud shows what was set.
    Action.RESIZE: Backoff(base=5.0, cap=300.0),
    # Until the index of tags knows that the address is gone.
    Action.UNTAG: Backoff(base=5.0, cap=300.0),
}
BUSY = 0.2
"""Seconds after which to look again for what another reconcile is about."""


class NotBelieved(Exception):
    """An address is missing, and so is what would show that this is the right account, region and time."""


class Reader:
    def __init__(self, sources: Sources, memory: Memory, cloud: BatchedCloud) -> None:
        self._nodes, self._claims, self._inventory = sources.nodes, sources.claims, sources.inventory
        self._settings, self._clocks = sources.settings, sources.clocks
        self._memory, self._cloud = memory, cloud

    def instances(self, uid: str) -> set[str]:
        """Those that a reconcile of *uid* may change an address of."""
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
        related = replace(self._related(node, claim), was_wanted=uid in self._nodes.wanted)
        order = self._order(claim) if claim and not claim.address else Order()
        seen = self._listed(node, claim)
        egress = self._memory.egress.view(uid)
        pool, announcement = self._pool(node, claim), self._announcement(claim)
        is_braked = claim is not None and self._memory.brake.holds(claim.address)
        return Snapshot(
            uid, node, claim, related, order, seen, pool, announcement, egress, is_braked=is_braked
        )

    def _announcement(self, claim: Claim | None) -> Announcement | None:
        """None when the address may be bound."""
        seconds = self._settings().allow_list.announce_before
        if not seconds or claim is None:
            return None
        return self._memory.announcements.of(claim.address, seconds)

    def _pool(self, node: Node | None, claim: Claim | None) -> Pool:
        if node and claim and claim.address:
            return NO_POOL
        if claim and not node:
            return self._place(claim)
        pooled = self._claims.having(POOLED)
        if not pooled or not node:
            return NO_POOL
        return Pool(offer=next((each for each in in_line(pooled) if self._is_free(each, node)), None))

    def _place(self, claim: Claim) -> Pool:
        """What is of a former type takes no place from others."""
        settings, now = self._settings(), self._clocks.now()
        counted = [each for each in self._claims.having(POOLED) if not self._is_of_former_type(each)]
        unchanged = self._memory.waits.seconds(claim.uid, Action.KEEP, settings.address_type)
        is_spared = is_recent(claim, settings.pool, now) or unchanged < SLIP
        return Pool(
            has_place=has_place(claim, counted, settings.pool, now),
            stays_anyway=is_spared and not claim.lent,
        )

    def _is_of_former_type(self, claim: Claim) -> bool:
        return is_of_former_type(self._inventory.get(claim.address), self._settings())

    def _is_free(self, offer: Claim, node: Node) -> bool:
        """Whether *node* may have it: no other claim has it yet, and no new node is on its former instance."""
        listed = self._inventory.get(offer.address)
        if len(self._claims.having(offer.address)) > 1 or self._heir(offer):
            return False
        is_right = listed is None or is_usable(listed, self._settings())
        return is_right and self._is_paid_right(offer, listed, node)

    def _is_paid_right(self, offer: Claim, listed: Address | None, node: Node) -> bool:
        """With one way to pay for all, what was ordered before it was configured is good enough."""
        settings = self._settings()
        if not settings.addresses:
            return True
        found = terms_of(listed) if listed else offer.terms or terms_of_all(settings)
        return is_paid_as(found, terms_for(node, settings) or terms_of_all(settings))

    def read(self, snapshot: Snapshot, action: Action) -> Snapshot:
        """*snapshot* with the answer to what *action* asks, and the pool as it is by then. CloudError, RetryAfter."""
        answered = self._answered(snapshot, action)
        return replace(answered, pool=self._pool(snapshot.node, snapshot.claim))

    def _answered(self, snapshot: Snapshot, action: Action) -> Snapshot:
        claim = snapshot.claim
        if action is Action.LOOK and snapshot.node:
            found = self._cloud.addresses_on(claim.instance if claim else instance_of(snapshot.node))
            seen = replace(snapshot.seen, on_instance=found, owner=self._owner(found))
            return replace(snapshot, seen=seen)
        if action is Action.FIND and claim:
            return replace(snapshot, order=replace(snapshot.order, lookup=self._lookup(claim)))
        if action is Action.EXAMINE and claim:
            return replace(snapshot, runs=self._runs(claim))
        return replace(snapshot, seen=self._watch(claim)) if claim else snapshot

    def _related(self, node: Node | None, claim: Claim | None) -> Related:
        if claim is None:
            return self._of_node(node) if node else Related()
        if self._is_leaving(claim):
            return Related(heir=self._heir(claim), elsewhere=self._is_elsewhere(claim))
        return Related()

    def _of_node(self, node: Node) -> Related:
        instance = instance_of(node)
        found = self._found(node, instance)
        if not instance or not wanted(node, self._settings()):
            return Related(found=found)
        left = [each for each in self._claims.having(instance) if self._has_left(each)]
        predecessor = max(left, key=lambda each: each.asked, default=None)
        return Related(predecessor=predecessor, rival=self._user_of(instance), found=found)

    def _is_leaving(self, claim: Claim) -> bool:
        return is_leaving(self._nodes.get(claim.uid), claim, self._settings())

    def _has_left(self, claim: Claim) -> bool:
        return self._is_idle(claim) or has_left(self._nodes.get(claim.uid), claim, self._settings())

    def _is_idle(self, claim: Claim) -> bool:
        """Whether its node has no labels, and its instance, as far as is known, not its address any more."""
        node, listed = self._nodes.get(claim.uid), self._inventory.get(claim.address)
        if node is None or wanted(node, self._settings()):
            return False
        return bound_to(listed) != claim.instance if listed else claim.address not in self._inventory.ips()

    def _user_of(self, value: str) -> Claim | None:
        """The claim of a node that stays, which has this instance or address."""
        there = self._claims.having(value)
        return next((each for each in there if not self._is_leaving(each) and not self._is_idle(each)), None)

    def _owner(self, found: Iterable[Address]) -> str:
        """For a node without a claim: another node, which stays, and whose claim has one of *found*."""
        owners = (self._user_of(each.id) for each in found if bound_to(each))
        return next((each.node for each in owners if each), "")

    def _found(self, node: Node, instance: str) -> Address | None:
        """One that is claimed by no node, and is there or free."""
        listed = self._inventory.unspent((node.metadata.name, instance)) if instance else ()
        free = [each for each in listed if bound_to(each) in ("", instance)]
        return next((each for each in free if not self._claims.having(each.id)), None)

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
        others = self._claims.having(claim.address or claim.token)
        return any(_precedence(each) > _precedence(claim) or not self._is_leaving(each) for each in others)

    def _order(self, claim: Claim) -> Order:
        tags = order_for(claim, self._settings(), self._inventory.cluster_uuid).tags
        return Order(
            age=(self._clocks.now() - claim.asked).total_seconds(),
            in_doubt=claim.token not in self._claims.unsent,
            refused=claim.token in self._claims.refused,
            tagged=self._cloud.has_tags(tags.items()),
        )

    def _listed(self, node: Node | None, claim: Claim | None) -> Seen:
        """For a node that is not open, a list that may be old proves nothing."""
        listed = self._inventory.get(claim.address) if node and claim and is_open(node) else None
        if listed is None or claim is None or node is None or not serves(listed, claim.instance):
            return Seen()
        wanted_ = wanted_bandwidth(node, self._settings())
        return Seen(listed) if wanted_ in (0, listed.bandwidth) else Seen()

    def _lookup(self, claim: Claim) -> Lookup:
        found = self._cloud.named(claim.name)
        mine = [each for each in found if not self._claims.having(each.id) and _is_for(each, claim)]
        return Lookup(
            mine[0] if mine else None, self._memory.waits.seconds(claim.uid, Action.FIND, claim.token)
        )

    def _watch(self, claim: Claim) -> Seen:
        waits = self._memory.waits
        seen = self._cloud.address(claim.address)
        if seen is None:
            return Seen(self._missing(claim))
        self._inventory.note(seen)
        if seen.status in (BIND, BIND_ENI):
            waits.end(claim.uid, Action.BIND)
        return Seen(seen, seconds=waits.seconds(claim.uid, Action.WATCH, seen.status))

    def _missing(self, claim: Claim) -> Unseen:
        """An address that is not listed may be there: the list may be empty by mistake, or another account's."""
        # One that is lent would be adopted again.
        if claim.address in self._inventory.released or (claim.lent and claim.pooled):
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
        if listed := self._inventory.ids():
            return claim.address not in listed
        if missing < ALONE and not claim.releasing:
            return False
        witnesses = self._witnesses()
        own = () if claim.instance == POOL else (claim.instance,)
        try:
            states = self._cloud.instance_states(dict.fromkeys((*own, *witnesses)))
        except (CloudError, RetryAfter) as error:
            raise _not_believed(claim, error) from error
        return any(state is not None for state in states) or (
            claim.releasing and not witnesses and missing >= UNPROVEN
        )

    def _runs(self, claim: Claim) -> bool:
        """Whether the instance of *claim* does, as far as is known."""
        try:
            (state,) = self._cloud.instance_states([claim.instance])
        except (CloudError, RetryAfter):
            return True
        return state is not None and state not in ENDING

    def _witnesses(self) -> Sequence[str]:
        named = map(instance_of, self._nodes.list())
        return list(islice(filter(None, named), WITNESSES))


def _precedence(claim: Claim) -> tuple[bool, str]:
    return claim.pooled is None, claim.uid


def _not_believed(claim: Claim, why: Exception | str = "") -> RetryAfter:
    error = NotBelieved(
        f"{claim.address} is not listed, and does not count as gone before another address of the cluster, or an"
        " instance of it, is listed: check that cloud.region and the keys are those with which it was allocated"
        + (f": {why}" if why else "")
    )
    return RetryAfter(error, AGAIN)


def _is_for(address: Address, claim: Claim) -> bool:
    mine = address.tags.get(NODE_INSTANCE) == claim.instance
    return mine and bound_to(address) in ("", claim.instance)


@dataclass
class _Wait:
    state: str
    since: float
    times: int = 0
    until: float = 0.0


class Waits:
    """How long and how often a node has waited for the same thing. Safe to share between threads.

    A wait begins again when its *state*, what is waited for, is another one.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.now = clock
        self._waits: dict[tuple[str, Action], _Wait] = {}

    def seconds(self, uid: str, action: Action, state: str) -> float:
        """Since this state was first seen, which is now if it was not."""
        return self.now() - self._of(uid, action, state).since

    def again(self, uid: str, action: Action) -> float:
        """Seconds until the next attempt, longer each time."""
        wait = self._waits.setdefault((uid, action), _Wait("", self.now()))
        wait.times += 1
        pause = PAUSES[action].delay(1 + wait.times // POLLS if action is Action.WATCH else wait.times)
        wait.until = self.now() + pause
        return pause

    def left(self, uid: str, action: Action, state: str) -> float:
        """Seconds of the last pause that are left."""
        return max(0.0, self._of(uid, action, state).until - self.now())

    def attempts(self, uid: str, action: Action) -> int:
        """At what is refused again and again, with reconciles between that only see that its pause is not over."""
        return self.times(uid, action) if action in (Action.BIND, Action.RESIZE) else 0

    def times(self, uid: str, action: Action) -> int:
        wait = self._waits.get((uid, action))
        return wait.times if wait else 0

    def end(self, uid: str, *which: Action) -> None:
        """Forget the waits for *which*, or all."""
        for action in which or Action:
            self._waits.pop((uid, action), None)

    def _of(self, uid: str, action: Action, state: str) -> _Wait:
        wait = self._waits.get((uid, action))
        if wait is None or wait.state != state:
            wait = self._waits[uid, action] = _Wait(state, self.now())
        return wait


@dataclass(frozen=True)
class Memory:
    """What this process remembers between two reconciles of a node; it can find out all of it again after a restart."""

    waits: Waits
    locks: Locks
    announcements: Announcements
    brake: Brake
    egress: EgressChecks

    def forget(self, uid: str) -> None:
        """The node is gone, and so is its claim."""
        self.waits.end(uid)
        self.egress.end(uid)
        self.brake.note(uid, is_held=False)


def locked_by(claim: Claim) -> str:
    """What only one reconcile at a time may be about: the instance of *claim*, or itself when it has none."""
    return claim.uid if claim.instance == POOL else claim.instance


class Busy(Exception):
    """Another reconcile is about it, or was: look again in BUSY seconds."""


class Locks:
    """Let one reconcile at a time be about an instance. Safe to share between threads."""

    def __init__(self) -> None:
        self._held = set[str]()
        self._changing = threading.Lock()

    @contextmanager
    def held(self, names: Collection[str]) -> Iterator[None]:
        """Hold *names* for the length of the block; Busy when others hold some."""
        with self._changing:
            if not self._held.isdisjoint(names):
                raise Busy(*names)
            self._held.update(names)
        try:
            yield
        finally:
            with self._changing:
                self._held.difference_update(names)
