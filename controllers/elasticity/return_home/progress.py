"""What became of an eviction, and when a workload may have its next one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from controllers.elasticity.filters import Request
from controllers.elasticity.return_home.failures import Failed
from controllers.elasticity.return_home.planner import Member, unavailable

SETTLE = 30.0
"""Seconds within which an eviction shows."""
GONE = 60.0
"""Seconds within which a replacement is created; without one, the workload was scaled in or updated."""
STALLED = 600.0
"""Seconds for which a replacement may be pending or unready before its place is given to another workload."""
POSTPONED = 60.0
"""Seconds after which a workload that was refused is tried again."""


class Outcome(StrEnum):
    LOCAL = "local"
    SUPER = "super"
    STALLED = "stalled"
    ABANDONED = "abandoned"
    """Its workload has fewer pods now, or none."""
    KEPT = "kept"
    """The eviction did not take place."""


FAILURES = (Outcome.SUPER, Outcome.STALLED)


@dataclass(frozen=True)
class Return:
    """*siblings* are the uids of the workload's pods at the eviction of *request*'s, at that monotonic time.

    *before* are the failures in a row that preceded it.
    """

    request: Request
    siblings: frozenset[str]
    at: float
    before: Failed | None = None

    @property
    def key(self) -> str:
        return self.request.pod.key


def outcome(
    begun: Return, members: Sequence[Member], super_nodes: Container[str], seconds: float
) -> Outcome | None:
    """None while that is open; *members* are the workload's now, *seconds* those since the eviction."""
    new = [each for each in members if each.pod.metadata.uid not in begun.siblings]
    if any(each.pod.node_name in super_nodes for each in new):
        return Outcome.SUPER
    if any(each.pod.metadata.uid == begun.request.pod.metadata.uid for each in members):
        return Outcome.KEPT if seconds >= SETTLE else None
    if not unavailable(members):
        if members and len(members) >= len(begun.siblings):
            return Outcome.LOCAL
        if seconds >= GONE:
            return Outcome.ABANDONED
    return Outcome.STALLED if seconds >= STALLED else None


class Attempts:
    """What this leader has seen of each key; *clock* is monotonic. A new leader begins with nothing, and so waits."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._room_since: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        self._last = float("-inf")

    def observe(self, rooms: Mapping[str, bool]) -> None:
        """Which keys have room at the moment; the others have none."""
        now = self._clock()
        self._room_since = {key: self._room_since.get(key, now) for key, has in rooms.items() if has}

    def is_due(self, key: str, after: float) -> bool:
        now = self._clock()
        lasted = now - self._room_since.get(key, now)
        return lasted >= after and now >= self._not_before.get(key, now)

    def may_evict(self, interval: float) -> bool:
        return self._clock() - self._last >= interval

    def evicted(self) -> None:
        self._last = self._clock()

    def postpone(self, key: str) -> None:
        self._not_before[key] = self._clock() + POSTPONED

    def keep_only(self, keys: Collection[str]) -> None:
        self._not_before = {key: until for key, until in self._not_before.items() if key in keys}
