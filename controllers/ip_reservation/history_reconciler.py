"""Note who had each address before: the leader follows the blocks of Calico's pools, and stores what ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

import msgspec
import structlog
from msgspec.structs import replace

from calico.holders import HeldBlock, decode_held
from calico.pools import BLOCKS, located
from controllers.clock import CLOCK, Clock
from controllers.ip_reservation.history import (
    MOST,
    Former,
    History,
    grown,
    is_news,
    merged,
    released,
    with_gap,
)
from controllers.ip_reservation.history_store import HistoryStore, NotOurs
from controllers.manager import Context
from controllers.workqueue import WorkQueue
from kube.errors import Backoff, KubeError
from kube.informer import Informer
from kube.leader_election import LeadershipLost
from settings import IPReservationSettings

PERIOD = 60.0
"""Seconds between two writes at least."""
GATHER = 2.0
"""Seconds from the first release after a pause until it is stored, so that others share the write."""
SOON = 0.1
UNSERVED = 15.0
"""Seconds until the next look for blocks that no group serves."""
AGAIN = 300.0
"""Seconds until the next look at a ConfigMap of another client."""
PAUSES = Backoff(base=0.5, cap=30.0)
KEY = "history"

log = structlog.get_logger(__name__)


class HistoryReconciler:
    """Nothing waits for it. What it has seen it remembers until it is stored, and what is stored is never replaced
    by less: on a conflict, both are merged.

    A leader that is killed loses what ended in the last minute; the next one notes that gap.
    """

    def __init__(
        self, context: Context, settings: Callable[[], IPReservationSettings], clock: Clock = CLOCK
    ) -> None:
        self._context, self._settings, self._clock = context, settings, clock
        self._store = HistoryStore(context.client, context.namespace)
        self._blocks: Informer[HeldBlock] | None = None
        self._lists = 0
        self._fresh: deque[Former] = deque()
        self._known: History | None = None
        self._stored: History | None = None
        self._is_current = False
        self._next = 0.0
        self._wake: Callable[[], None] = lambda: None

    @contextmanager
    def following(self) -> Iterator[None]:
        """Within the block, the history is kept if that was switched on at its begin."""
        if not self._settings().pools.keeps_history:
            yield
            return
        queue = WorkQueue("ip_reservation_history", pauses=PAUSES)
        self._wake = partial(queue.add_after, KEY, GATHER)
        with self._context.working(queue, self.reconcile):
            queue.add(KEY)
            yield
        self._finish()

    def reconcile(self, _key: str) -> float:
        """Store what ended, at most once in PERIOD, and only then. Raises KubeError."""
        if not self._settings().pools.keeps_history:  # switched off meanwhile
            self._fresh.clear()
            return PERIOD
        if self._blocks is None:
            self._blocks = self._begin()
        if self._blocks is None:
            return UNSERVED
        if not self._blocks.wait_synced(0):
            return SOON
        left = self._next - self._clock.monotonic()
        return left if left > 0 else self._turn(self._blocks)

    def _begin(self) -> Informer[HeldBlock] | None:
        client = self._context.client
        blocks = located(client, BLOCKS, self._settings().calico_api_version)
        if blocks is None:
            return None
        # Without permission, this says so in the log.
        client.request("GET", blocks.path(), query={"limit": 1}, type=msgspec.Raw)
        followed = self._context.informers.of(blocks, HeldBlock, decode=decode_held, optional=True)
        followed.on_change(self._observe)
        return followed

    def _observe(self, old: HeldBlock | None, new: HeldBlock | None) -> None:
        found = tuple(released(old, new, self._clock.now().replace(microsecond=0)))
        if not found:
            return
        self._fresh.extend(found)
        while len(self._fresh) > 2 * MOST:
            self._fresh.popleft()  # what is left is still too many, so that the loss is noted
        self._wake()

    def _turn(self, blocks: Informer[HeldBlock]) -> float:
        try:
            if self._save(blocks):
                self._next = self._clock.monotonic() + PERIOD
        except NotOurs as error:
            log.warning("history of addresses not stored", error=str(error))
            self._next = self._clock.monotonic() + AGAIN
            return AGAIN
        return PERIOD

    def _save(self, blocks: Informer[HeldBlock], *, last: bool = False) -> bool:
        """Whether there was something to write; after a write of which the end is not known, read first.

        The *last* write of a leader also says up to when it has seen the blocks.
        """
        known = self._known if self._known and self._is_current else self._read()
        self._known = known = self._with_news(known, blocks)
        since = (known.seen - self._stored.seen).total_seconds() if self._stored else 0.0
        period = self._settings().pools.history
        if not is_news(self._stored, known, self._clock.now(), period) and not (last and since > PERIOD):
            return False
        self._is_current = False
        self._known = self._stored = self._store.write(known)
        self._is_current = True
        return True

    def _read(self) -> History:
        """What is stored and what is known; from where a former leader stopped, up to now, is a gap."""
        self._stored = stored = self._store.read()
        self._is_current, now = True, self._clock.now().replace(microsecond=0)
        if self._known:
            return merged(stored, self._known) if stored else self._known
        return with_gap(stored, now) if stored else History(begun=now, seen=now)

    def _with_news(self, known: History, blocks: Informer[HeldBlock]) -> History:
        now = self._clock.now().replace(microsecond=0)
        if blocks.lists > self._lists > 0:
            known = with_gap(known, now)
        self._lists = blocks.lists
        # In this order: what ends meanwhile is in the next turn, whose gap, if there is one, begins before.
        seen = max(known.seen, now - timedelta(seconds=blocks.silence + GATHER))
        fresh = [self._fresh.popleft() for _ in range(len(self._fresh))]
        return grown(replace(known, seen=seen), fresh, now, self._settings().pools.history)

    def _finish(self) -> None:
        """Store the rest while we lead: the next leader does not know it."""
        if self._blocks is None or self._known is None:
            return
        try:
            self._save(self._blocks, last=True)
        except (KubeError, NotOurs, LeadershipLost) as error:
            log.warning("history of addresses not stored", error=str(error))
