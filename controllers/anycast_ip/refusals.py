"""A refusal is the node's own until a second node is refused the same step; then one node tries for all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cloud.errors import NotPermitted, QuotaExceeded
from controllers.anycast_ip.lanes import NO_USE
from controllers.anycast_ip.state import Case, Do, Known, Step

PERHAPS_FOR_ALL = (QuotaExceeded, NotPermitted)
"""What may be true of one node, by a policy on resources or tags, or of all of them."""
ENOUGH = 2
"""So many different nodes that are refused make a refusal one of all nodes."""


@dataclass
class _Lane:
    """*suspects* were refused since the last success, *own* are the nodes whose refusals say nothing of others."""

    suspects: dict[str, tuple[Known, Exception]] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)
    holds: int = 0
    until: float = -math.inf
    error: Exception | None = None


class Refusals:
    """By step. Not safe to share between threads: the caller locks."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lanes: dict[Do, _Lane] = {}

    def is_held(self, do: Do) -> bool:
        """Whether one node at a time tries for all."""
        return self._lane(do).holds > 0

    def free_at(self, do: Do) -> float:
        return self._lane(do).until

    def in_order(self, do: Do, ready: Sequence[tuple[Case, Step]]) -> Sequence[tuple[Case, Step]]:
        """While the step is held, nodes that were not refused come first: it is not always the same that tries."""
        lane = self._lane(do)
        if not lane.holds:
            return ready
        return sorted(
            ready,
            key=lambda each: (
                each[0].uid in lane.own,
                each[0].uid in lane.suspects,
                each[0].known.failures[do],
            ),
        )

    def waits_for(self, do: Do, case: Case) -> Exception | None:
        """The refusal of other nodes that *case* waits for, if it does; one that was refused itself knows why."""
        lane = self._lane(do)
        refused_itself = case.uid in lane.suspects or case.uid in lane.own
        return lane.error if lane.holds and not refused_itself else None

    def refused(self, do: Do, case: Case, error: Exception) -> float:
        """Seconds that the node itself has to wait."""
        lane = self._lane(do)
        alone = NO_USE.delay(case.known.failures[do])
        if case.uid in lane.own and isinstance(error, NotPermitted):
            return alone
        lane.suspects[case.uid] = case.known, error
        if len(lane.suspects) < ENOUGH and not lane.holds:
            return alone
        self._hold(do, lane, error)
        return 0.0

    def _hold(self, do: Do, lane: _Lane, error: Exception) -> None:
        now = self._clock()
        if lane.until > now:  # others that were under way say no more than the first
            return
        lane.holds += 1
        lane.until = now + NO_USE.delay(lane.holds)
        lane.error = lane.error or error
        for known, _ in lane.suspects.values():
            known.unready.pop(do, None)

    def served(self, do: Do, case: Case) -> None:
        """The step is possible: refusals were of the nodes that were refused, as far as a policy is the reason."""
        lane = self._lanes.get(do)
        if lane is None:
            return
        lane.own.discard(case.uid)
        lane.suspects.pop(case.uid, None)
        denied = {uid for uid, (_, error) in lane.suspects.items() if isinstance(error, NotPermitted)}
        lane.own |= denied
        if lane.holds:
            self.try_again(do)
        for uid in denied if not lane.holds else list(lane.suspects):
            del lane.suspects[uid]
        lane.holds, lane.until, lane.error = 0, -math.inf, None

    def try_again(self, do: Do) -> None:
        """Something has changed: the refused nodes may try now."""
        lane = self._lane(do)
        lane.until = -math.inf
        for known, _ in lane.suspects.values():
            known.unready.pop(do, None)
            known.failures.pop(do, None)

    def forget(self, uid: str) -> None:
        """The node is gone."""
        for lane in self._lanes.values():
            lane.suspects.pop(uid, None)
            lane.own.discard(uid)

    def _lane(self, do: Do) -> _Lane:
        return self._lanes.setdefault(do, _Lane())
