"""What this process remembers between two reconciles of a node; it can find out all of it again after a restart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from controllers.anycast_ip.announcements import Announcements
from controllers.anycast_ip.brake import Brake
from controllers.anycast_ip.egress import EgressChecks
from controllers.anycast_ip.locks import Locks
from controllers.anycast_ip.snapshot import Do
from kube.errors import Backoff
from runtime import time, utc_now

POLLS = 5
"""So many in a row come at the same distance: a bind takes a few seconds."""
PAUSES = {
    Do.WATCH: Backoff(base=0.7, cap=10.0),
    Do.LOOK: Backoff(base=2.0, cap=60.0),
    Do.BIND: Backoff(base=2.0, cap=300.0),
    Do.FIND: Backoff(base=2.0, cap=30.0),
    # Until it runs no more, an operator confirms, or a period is over.
    Do.EXAMINE: Backoff(base=5.0, cap=300.0),
    # Until the cloud shows what was set.
    Do.RESIZE: Backoff(base=5.0, cap=300.0),
    # Until the index of tags knows that the address is gone.
    Do.UNTAG: Backoff(base=5.0, cap=300.0),
}


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
        self._waits: dict[tuple[str, Do], _Wait] = {}

    def seconds(self, uid: str, do: Do, state: str) -> float:
        """Since this state was first seen, which is now if it was not."""
        return self.now() - self._of(uid, do, state).since

    def again(self, uid: str, do: Do) -> float:
        """Seconds until the next attempt, longer each time."""
        wait = self._waits.setdefault((uid, do), _Wait("", self.now()))
        wait.times += 1
        pause = PAUSES[do].delay(1 + wait.times // POLLS if do is Do.WATCH else wait.times)
        wait.until = self.now() + pause
        return pause

    def left(self, uid: str, do: Do, state: str) -> float:
        """Seconds of the last pause that are left."""
        return max(0.0, self._of(uid, do, state).until - self.now())

    def attempts(self, uid: str, do: Do) -> int:
        """At what is refused again and again, with reconciles between that only see that its pause is not over."""
        return self.times(uid, do) if do in (Do.BIND, Do.RESIZE) else 0

    def times(self, uid: str, do: Do) -> int:
        wait = self._waits.get((uid, do))
        return wait.times if wait else 0

    def end(self, uid: str, *which: Do) -> None:
        """Forget the waits for *which*, or all."""
        for do in which or Do:
            self._waits.pop((uid, do), None)

    def _of(self, uid: str, do: Do, state: str) -> _Wait:
        wait = self._waits.get((uid, do))
        if wait is None or wait.state != state:
            wait = self._waits[uid, do] = _Wait(state, self.now())
        return wait


@dataclass(frozen=True)
class Clocks:
    """*monotonic* in seconds, and the time of day."""

    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = field(default=utc_now)


class Memory:
    """*wanted*: uids of nodes that were seen with the labels, and have not been stripped since.

    *unsent*: tokens of orders that have not been sent; after a start there is none, so that each order is in doubt: it
    may have brought an address that no claim names yet. *refused*: tokens that the cloud takes no more. *released*:
    addresses whose release the cloud has accepted from this process.
    """

    def __init__(self, clocks: Clocks, brake: Brake | None = None) -> None:
        self.clocks, self.waits, self.locks = clocks, Waits(clocks.monotonic), Locks()
        self.announcements = Announcements(clocks.now)
        self.brake = brake or Brake(clocks.now)
        self.egress = EgressChecks(clocks.monotonic)
        self.wanted, self.unsent, self.refused = set[str](), set[str](), set[str]()
        self.released = set[str]()

    def forget(self, uid: str) -> None:
        """The node is gone, and so is its claim."""
        self.waits.end(uid)
        self.egress.end(uid)
        self.brake.note(uid, is_held=False)
        self.wanted.discard(uid)

    def end_order(self, token: str) -> None:
        self.unsent.discard(token)
        self.refused.discard(token)
