"""Which pod on a super node may be replaced by a local one, why the others are not, and what became of an eviction."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from api.elasticity import LOCAL_REPLICAS, RETURN_HOME, never_returns
from controllers.elasticity.filters import Request
from controllers.elasticity.pods import Pod
from controllers.elasticity.return_home.failures import Failed


@dataclass(frozen=True)
class Burst:
    """A pod that came to a super node because no local node had room.

    *limit* is its LOCAL_REPLICAS; *ordinal* counts from the first of its StatefulSet.
    """

    pod: Pod
    limit: int | None = None
    ordinal: int | None = None


@dataclass(frozen=True)
class Group:
    """The pods of one owner and revision: *members* are all that are active, *local* those on local nodes."""

    members: Sequence[Pod]
    bursts: Sequence[Burst]
    local: int


@dataclass(frozen=True)
class Choice:
    """The pod that returns first, if any may, and *why* not now."""

    burst: Burst | None
    why: str | None = None

    @property
    def due(self) -> Burst | None:
        return None if self.why else self.burst


def choose(group: Group, now: datetime, after: float) -> Choice:
    """The pod that goes first; *after* is in seconds."""
    objections = [never_returns(burst.pod.metadata) or _beyond(burst, group.local) for burst in group.bursts]
    free = [burst for burst, why in zip(group.bursts, objections, strict=True) if not why]
    if not free:
        return Choice(None, next(iter(objections), "none of its pods is on a super node"))
    first = max(free, key=_order)
    why = unavailable(group.members) or _alone(group, first) or _young(group, now, after)
    return Choice(first, why)


def unavailable(members: Sequence[Pod]) -> str | None:
    """Why a workload can miss none of its pods now."""
    for pod in members:
        if pod.gated or not pod.node_name:
            return f"{pod.metadata.name} has no node yet"
        if not pod.ready:
            return f"{pod.metadata.name} is not ready"
    return None


def _beyond(burst: Burst, local: int) -> str | None:
    """Its replacement would be placed on a super node."""
    before = local if burst.ordinal is None else burst.ordinal
    if burst.limit is None or before < burst.limit:
        return None
    return f"{LOCAL_REPLICAS} is {burst.limit}, and {before} come before it: its like belong on super nodes"


def _alone(group: Group, burst: Burst) -> str | None:
    if len(group.members) > 1 or burst.pod.metadata.annotations.get(RETURN_HOME) == "true":
        return None
    return f'it is the only pod of its workload; {RETURN_HOME}: "true" allows the gap'


def _young(group: Group, now: datetime, after: float) -> str | None:
    """A pod that came a moment ago says that there was no room then. It is known, too, after a crash."""
    for burst in group.bursts:
        created = burst.pod.metadata.creation_timestamp
        if created is not None and (now - created).total_seconds() < after:
            return f"{burst.pod.metadata.name} came to a super node less than {after:g} s ago"
    return None


def _order(burst: Burst) -> tuple[int, str, str]:
    """The highest ordinal first, as in a rolling update, and the youngest."""
    at = burst.pod.metadata
    born = at.creation_timestamp.isoformat() if at.creation_timestamp else ""
    return burst.ordinal if burst.ordinal is not None else -1, born, at.name


SETTLE = 30.0
"""Seconds within which an eviction shows."""
GONE = 60.0
"""Seconds within which a replacement is created; without one, the workload was scaled in or updated."""
STALLED = 600.0
"""Seconds for which a replacement may be pending or unready before its place is given to another workload."""


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

    def replacements(self, members: Iterable[Pod]) -> list[Pod]:
        """Those that the workload got since then."""
        return [pod for pod in members if pod.metadata.uid not in self.siblings]


def outcome(
    begun: Return, members: Sequence[Pod], super_nodes: Container[str], seconds: float
) -> Outcome | None:
    """None while that is open; *members* are the workload's now, *seconds* those since the eviction."""
    if any(pod.node_name in super_nodes for pod in begun.replacements(members)):
        return Outcome.SUPER
    if any(pod.metadata.uid == begun.request.pod.metadata.uid for pod in members):
        return Outcome.KEPT if seconds >= SETTLE else None
    if not unavailable(members):
        if members and len(members) >= len(begun.siblings):
            return Outcome.LOCAL
        if seconds >= GONE:
            return Outcome.ABANDONED
    return Outcome.STALLED if seconds >= STALLED else None
