"""Who had which address before: the leader sees in Calico's blocks what ends, and stores it in a ConfigMap.

It is bounded in time, number and bytes.
"""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta

import msgspec
import structlog
from msgspec.structs import replace
from prometheus_client import Counter, Gauge

from api.ip_history import FILE, LABEL, LABEL_VALUE, NAME, Former, History, StoredHistory
from calico.pools import Block
from calico.segment import MANAGED_BY, MANAGER
from controllers.clock import CLOCK, Clock
from controllers.controller import Controller
from controllers.manager import Context
from controllers.workqueue import WorkQueue
from kube.client import Client
from kube.errors import Backoff, KubeError
from kube.informer import Informer
from kube.leader_election import LeadershipLost
from kube.store import NotOurs, Store
from settings import IPReservationSettings

HISTORY = "history"
"""The one key."""
MOST = 20_000
"""Former holders at most."""
SIZE = 768 * 1024
"""Bytes of what is stored at most: a ConfigMap may have 1 MiB."""
MOST_GAPS = 20
SWEEP = 3600.0
"""Seconds for which stored holders may be too old before they alone are a reason to write."""
TIMEOUT = 3.0
"""Seconds for one call: a leader that stops waits for two."""
PERIOD = 60.0
"""Seconds between two writes at least."""
GATHER = 2.0
"""Seconds from the first release after a pause until it is stored, so that others share the write."""
SOON = 1.0
"""Seconds until the next look for blocks that are not followed or listed yet."""
AGAIN = 300.0
"""Seconds until the next look at a ConfigMap of another client."""
PAUSES = Backoff(base=0.5, cap=30.0)

ENTRIES = Gauge("drawbridge_ip_history_entries", "Former holders of addresses that are remembered.")
WRITES = Counter("drawbridge_ip_history_writes", "Attempts to store the history of addresses.", ["result"])
for _result in ("written", "failed"):
    WRITES.labels(_result)

log = structlog.get_logger(__name__)


def released(old: Block | None, new: Block | None, now: datetime) -> Iterator[Former]:
    """Those that had an address of *old*, and have it no longer in *new*."""
    if old is None:
        return
    after = new.holders if new else {}
    for place, holder in old.holders.items():
        if after.get(place) != holder:
            since, pod = moment_of(holder.since), holder.pod or holder.handle
            yield Former(old.ip(place), holder.namespace, pod, holder.node, since, now)


def moment_of(noted: str) -> datetime | None:
    """Of a time as Go prints it, `2026-01-02 03:04:05.678 +0000 UTC`; None for any other text."""
    try:
        return datetime.fromisoformat(noted[:19]).replace(tzinfo=UTC) if "+0000" in noted else None
    except ValueError:
        return None


def grown(known: History, fresh: Iterable[Former], now: datetime, period: float) -> History:
    """With *fresh* ones, and without those that ended more than *period* seconds ago, or are too many."""
    begin = now - timedelta(seconds=period)
    former = tuple(pod for pod in _unique((*known.former, *fresh)) if pod.until >= begin)
    gaps = tuple(gap for gap in known.gaps if gap[1] >= begin)
    truncated = known.truncated if known.truncated and known.truncated >= begin else None
    return _shortened(replace(known, former=former, gaps=gaps, truncated=truncated), MOST)


def with_gap(known: History, until: datetime) -> History:
    """Nothing was seen from *known.seen* on; of many gaps, the oldest become one."""
    if known.seen >= until:
        return known
    gaps = (*known.gaps, (known.seen, until))
    surplus = len(gaps) - MOST_GAPS
    if surplus > 0:
        gaps = ((gaps[0][0], gaps[surplus][1]), *gaps[surplus + 1 :])
    return replace(known, gaps=gaps, seen=until)


def merged(one: History, other: History) -> History:
    """What two leaders have seen."""
    dropped = [history.truncated for history in (one, other) if history.truncated]
    return History(
        begun=min(one.begun, other.begun),
        seen=max(one.seen, other.seen),
        former=_unique((*one.former, *other.former)),
        gaps=tuple(sorted({*one.gaps, *other.gaps})),
        truncated=max(dropped, default=None),
    )


def is_news(stored: History | None, known: History, now: datetime, period: float) -> bool:
    """Whether *known* is to be written over *stored*: what has only expired can wait a while."""
    if stored is None or stored.truncated != known.truncated or {*known.gaps} - {*stored.gaps}:
        return True
    latest = now - timedelta(seconds=period + SWEEP)
    if stored.former and stored.former[0].until < latest:
        return True
    return not {pod.key for pod in known.former} <= {pod.key for pod in stored.former}


def packed(known: History) -> tuple[History, bytes]:
    """What of *known* fits, and how it is stored."""
    while len(found := gzip.compress(msgspec.json.encode(known), 6, mtime=0)) > SIZE and known.former:
        known = _shortened(known, len(known.former) * 3 // 4)
    return known, found


def _shortened(known: History, most: int) -> History:
    surplus = len(known.former) - most
    if surplus <= 0:
        return known
    return replace(known, former=known.former[surplus:], truncated=known.former[surplus - 1].until)


def _unique(former: Iterable[Former]) -> tuple[Former, ...]:
    """Each once, by the first that saw its end; the oldest first."""
    found: dict[tuple[str, str, str, datetime], Former] = {}
    for pod in sorted(former, key=lambda pod: pod.until):
        found.setdefault(pod.key, pod)
    return tuple(found.values())


class HistoryStore:
    """Of the leader, in its *namespace*."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._store = Store(client, namespace, StoredHistory, TIMEOUT)

    def read(self) -> History | None:
        """None when there is none, or none that can be read. NotOurs, KubeError."""
        found = self._store.read(NAME, LABEL)
        try:
            return found.history if found else None
        except ValueError as error:
            log.warning("history of addresses not readable, a new one begins", error=str(error))
            return None

    def write(self, known: History) -> History:
        """What of *known* fits. Conflict or AlreadyExists when it is not as it was read."""
        kept, stored = packed(known)
        labels, content = {MANAGED_BY: MANAGER, LABEL: LABEL_VALUE}, {FILE: b64encode(stored).decode()}
        try:
            self._store.write(NAME, labels, binaryData=content)
        except KubeError:
            WRITES.labels("failed").inc()
            raise
        WRITES.labels("written").inc()
        ENTRIES.set(len(kept.former))
        return kept


class HistoryReconciler:
    """Nothing waits for it. What it has seen it remembers until it is stored, and what is stored is never replaced
    by less: each write adds to what it read a moment before.

    *blocks* are those that are followed, None as long as they are not. A leader that is killed loses what ended in the
    last minute; the next one notes that gap.
    """

    def __init__(
        self,
        context: Context,
        settings: Callable[[], IPReservationSettings],
        blocks: Callable[[], Informer[Block] | None],
        clock: Clock = CLOCK,
    ) -> None:
        self._settings, self._blocks, self._clock = settings, blocks, clock
        self._store = HistoryStore(context.client, context.namespace)
        self._follows, self._lists = False, 0
        # What is left of more is still too many, so that the loss is noted.
        self._fresh = deque[Former](maxlen=2 * MOST)
        self._known: History | None = None
        self._next = 0.0
        self._queue = WorkQueue("ip_reservation_history", pauses=PAUSES)

    def controller(self) -> Controller:
        return Controller(self._queue, self.reconcile, first=[HISTORY])

    def reconcile(self, _key: str) -> float:
        """Store what ended, at most once in PERIOD, and only then. Raises KubeError."""
        if not self._settings().pools.keeps_history:  # switched off meanwhile
            self._fresh.clear()
            return PERIOD
        blocks = self._blocks()
        if blocks is None or not blocks.wait_synced(0):
            return SOON
        if not self._follows:
            blocks.on_change(self._observe)
            self._follows = True
        left = self._next - self._clock.monotonic()
        return left if left > 0 else self._store_news(blocks)

    def _observe(self, old: Block | None, new: Block | None) -> None:
        if found := [*released(old, new, self._now())]:
            self._fresh.extend(found)
            self._queue.add_after(HISTORY, GATHER)

    def _store_news(self, blocks: Informer[Block]) -> float:
        try:
            if self._save(blocks):
                self._next = self._clock.monotonic() + PERIOD
        except NotOurs as error:
            log.warning("history of addresses not stored", error=str(error))
            self._next = self._clock.monotonic() + AGAIN
            return AGAIN
        return PERIOD

    def _save(self, blocks: Informer[Block], *, last: bool = False) -> bool:
        """Whether there was something to write. The *last* write of a leader also says until when it saw the blocks."""
        stored, period = self._store.read(), self._settings().pools.history
        self._known = known = self._with_news(self._joined(stored), blocks)
        since = (known.seen - stored.seen).total_seconds() if stored else 0.0
        if not is_news(stored, known, self._clock.now(), period) and not (last and since > PERIOD):
            return False
        self._known = self._store.write(known)
        return True

    def _joined(self, stored: History | None) -> History:
        """What is stored and what is known; from where a former leader stopped, up to now, is a gap."""
        if stored is None:
            return self._known or History(begun=self._now(), seen=self._now())
        return merged(stored, self._known) if self._known else with_gap(stored, self._now())

    def _with_news(self, known: History, blocks: Informer[Block]) -> History:
        now = self._now()
        if blocks.lists > self._lists > 0:
            known = with_gap(known, now)
        self._lists = blocks.lists
        # In this order: what ends meanwhile is in the next write, whose gap, if there is one, begins before.
        seen = max(known.seen, now - timedelta(seconds=blocks.silence + GATHER))
        fresh = [self._fresh.popleft() for _ in range(len(self._fresh))]
        return grown(replace(known, seen=seen), fresh, now, self._settings().pools.history)

    def _now(self) -> datetime:
        return self._clock.now().replace(microsecond=0)

    def finish(self) -> None:
        """Store the rest while we lead: the next leader does not know it."""
        blocks = self._blocks()
        if blocks is None or self._known is None:
            return
        try:
            self._save(blocks, last=True)
        except (KubeError, NotOurs, LeadershipLost) as error:
            log.warning("history of addresses not stored", error=str(error))
