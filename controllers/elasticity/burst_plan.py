"""A pending pod may go to super nodes when no local node has room; one that super nodes do not take is given up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from controllers.elasticity.annotations import Wish
from controllers.elasticity.planner import Destination
from controllers.elasticity.pods import Pod
from settings.elasticity import HomeFailover
from webhook.elasticity import SUPER

NO_OWNER = "Super nodes do not take it, and no controller would replace it: delete it, or make room there"


@dataclass(frozen=True)
class Stuck:
    """One that is *pinned* cannot go to super nodes."""

    pod: Pod
    wish: Wish
    pinned: bool = False


@dataclass(frozen=True)
class Refused:
    """Why *pod* is not placed as it might be; *reason* and *type* are the Event's."""

    pod: Pod
    reason: str
    why: str
    type: Literal["Normal", "Warning"] = "Warning"


@dataclass(frozen=True)
class Burst:
    pod: Pod
    why: str


def may_burst(pod: Pod) -> bool:
    """One that tolerates super nodes is allowed there already."""
    return pod.stuck_since is not None and pod.unbound is not None and not pod.unbound.tolerates


def plan(stuck: Iterable[Stuck], destination: Destination) -> list[Burst | Refused]:
    """*stuck* are the oldest first; there is no result for one whose volumes must be looked up."""
    return [each for case in stuck if (each := _judged(case, destination))]


def _judged(case: Stuck, destination: Destination) -> Burst | Refused | None:
    pod = case.pod
    if not case.wish.allowed:
        return Refused(
            pod, "KeptAtHome", f"No local node has room, and {case.wish.inputs}: it must stay local"
        )
    if case.pinned:
        return Refused(
            pod, "KeptAtHome", "No local node has room, and its affinity keeps it off super nodes: it waits"
        )
    found = destination.objections(pod, bound=False)
    if found is None:
        return None
    if found.rules:
        return Refused(
            pod, "NotEligibleForSuperNode", f"It cannot run on super nodes: {'; '.join(found.rules)}"
        )
    if found.misfit:
        return Refused(pod, "NoMatchingSuperNode", f"No local node has room, and {found.misfit}: it waits")
    if full := destination.take(pod, bound=False):
        return Refused(pod, "SuperNodeCapReached", f"No local node has room, and {full}: it waits")
    return Burst(pod, f"no local node has room, {case.wish.inputs}: it may go to a super node")


def stranded(pods: Iterable[Pod], settings: HomeFailover, now: datetime) -> list[Pod]:
    """Those placed on super nodes for which there has been no room there for too long."""
    if not settings.enabled:
        return []
    longest = now - timedelta(seconds=settings.home_after)
    return [pod for pod in pods if pod.placed == SUPER and pod.stuck_since and pod.stuck_since <= longest]
