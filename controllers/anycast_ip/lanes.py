"""How many nodes take one step at a time, and together in one call."""

from __future__ import annotations

from dataclasses import dataclass

from controllers.anycast_ip.state import Do
from kube.backoff import Backoff


@dataclass(frozen=True)
class Lane:
    """At most *batch* nodes in each of *parallel* calls; *distance* seconds at least from one start to the next.

    The distance is what lets nodes come together in one call, and is nothing to the first.
    """

    batch: int = 1
    parallel: int = 8
    distance: float = 0.0


LANES = {
    Do.LOOK: Lane(batch=100, parallel=1, distance=0.3),
    Do.WATCH: Lane(batch=300, parallel=1, distance=0.7),
    # Ten tags are in a call and each node has two of its own.
    Do.TAG: Lane(batch=50, parallel=1, distance=0.4),
    Do.UNTAG: Lane(batch=50, parallel=1, distance=1.0),
    Do.RELEASE: Lane(batch=40, parallel=1, distance=1.2),
    # They wait for their turns at the cloud's rate: enough of them that none is missed between two rounds.
    Do.ALLOCATE: Lane(parallel=12),
    Do.BIND: Lane(parallel=12),
    Do.UNBIND: Lane(parallel=12),
}
OTHER = Lane()
THREADS = 48

PAUSES = {
    Do.WATCH: Backoff(base=0.7, cap=10.0),
    Do.LOOK: Backoff(base=2.0, cap=60.0),
    Do.BIND: Backoff(base=2.0, cap=300.0),
    Do.FIND: Backoff(base=2.0, cap=30.0),
    # Until the index of tags has heard that the address is gone.
    Do.UNTAG: Backoff(base=5.0, cap=300.0),
}
USUAL = Backoff(base=0.5, cap=30.0)
NO_USE = Backoff(base=10.0, cap=300.0)
"""For all nodes together: a quota is used up, or something is not permitted, until a human sees to it."""


def lane_of(do: Do) -> Lane:
    return LANES.get(do, OTHER)


WATCHES = 5
"""So many in a row come at the same distance: a bind takes a few seconds."""


def pause(do: Do, failures: int) -> float:
    rounds = 1 + failures // WATCHES if do is Do.WATCH else failures
    return PAUSES.get(do, USUAL).delay(rounds)
