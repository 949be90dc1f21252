"""Reconcile one node at a time, each as if it were the only one; while one waits for the cloud, others go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import structlog

from cloud.batched import Pending
from cloud.errors import CloudError, RetryAfter
from controllers.anycast_ip.actions import Actions, StillThere
from controllers.anycast_ip.locks import BUSY, Busy
from controllers.anycast_ip.planner import plan
from controllers.anycast_ip.reader import Reader
from controllers.anycast_ip.reporter import Reporter, refusal
from controllers.anycast_ip.snapshot import READS, Do, Snapshot, Step
from controllers.anycast_ip.sources import Sources
from controllers.workqueue import PENDING, Stopping, WorkQueue
from kube.errors import KubeError
from kube.leader_election import LeadershipLost
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
        self, sources: Sources, reporter: Reporter, queue: WorkQueue, ended: Callable[[str], None]
    ) -> None:
        cloud = sources.cloud
        self._inventory, self._memory, self._settings = sources.inventory, sources.memory, sources.settings
        self._reader, self._actions = Reader(sources), Actions(sources).by_name
        self._reporter, self._queue, self._ended = reporter, queue, ended
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
            except Stopping:
                return None
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
