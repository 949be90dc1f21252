"""What this process remembers between two reconciles of a node; it can find out all of it again after a restart."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from controllers.anycast_ip.allow_list import Announcements
from controllers.anycast_ip.brake import Brake
from controllers.anycast_ip.claim import POOL, Claim
from controllers.anycast_ip.egress import EgressChecks
from controllers.anycast_ip.snapshot import Action
from kube.errors import Backoff
from runtime import threading

POLLS = 5
"""So many in a row come at the same distance: a bind takes a few seconds."""
PAUSES = {
    Action.WATCH: Backoff(base=0.7, cap=10.0),
    Action.LOOK: Backoff(base=2.0, cap=60.0),
    Action.FIND: Backoff(base=2.0, cap=30.0),
}
PAUSE = Backoff(base=5.0, cap=300.0)
"""Of all others: until the cloud has done, or shows, what it was asked for, or an operator confirms it."""
BUSY = 0.2
"""Seconds after which to look again for what another reconcile is about."""


@dataclass
class _Wait:
    state: str
    since: float
    times: int = 0
    until: float = 0.0
    accepted: int = 0


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
        times = 1 + wait.times // POLLS if action is Action.WATCH else wait.times
        pause = PAUSES.get(action, PAUSE).delay(times)
        wait.until = self.now() + pause
        return pause

    def left(self, uid: str, action: Action, state: str) -> float:
        """Seconds of the last pause that are left."""
        return max(0.0, self._of(uid, action, state).until - self.now())

    def times(self, uid: str, action: Action) -> int:
        wait = self._waits.get((uid, action))
        return wait.times if wait else 0

    def accepted(self, uid: str, action: Action) -> int:
        """How many of the attempts were, this one included."""
        wait = self._waits[uid, action]
        wait.accepted += 1
        return wait.accepted

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
    """All of it: a new leader begins without it."""

    waits: Waits
    locks: Locks
    announcements: Announcements
    brake: Brake
    egress: EgressChecks

    def forget(self, uid: str) -> None:
        """The node, or the address that it waited for, is gone."""
        self.waits.end(uid)
        self.egress.end(uid)


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
