"""A pod for which there is no room at home is let to super nodes, where it stands, if nothing forbids it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controllers.elasticity.placement import Destination
from controllers.elasticity.pods import Pod


@dataclass(frozen=True)
class Stuck:
    """*inputs* say in words why it is *allowed* to leave or not; one that is *pinned* cannot."""

    pod: Pod
    allowed: bool
    inputs: str
    pinned: bool = False


@dataclass(frozen=True)
class Refused:
    """Why *pod* has to wait; *reason* is the Event's."""

    pod: Pod
    reason: str
    why: str


@dataclass(frozen=True)
class Let:
    pod: Pod
    why: str


def is_stuck(pod: Pod) -> bool:
    """One that tolerates super nodes has been let to them already, or lets itself."""
    return pod.stuck_since is not None and pod.unbound is not None and not pod.unbound.tolerates


def plan(stuck: Iterable[Stuck], destination: Destination) -> list[Let | Refused]:
    """*stuck* are the oldest first; of one that must be looked at more closely, nothing is said yet."""
    return [each for case in stuck if (each := _judged(case, destination))]


def _judged(case: Stuck, destination: Destination) -> Let | Refused | None:
    pod = case.pod
    if not case.allowed:
        return Refused(pod, "KeptAtHome", f"No room at home, and {case.inputs}: it must not leave")
    if case.pinned:
        return Refused(
            pod, "KeptAtHome", "No room at home, and its affinity keeps it off super nodes: it waits"
        )
    found = destination.objections(pod, bound=False)
    if found is None:
        return None
    if found.rules:
        return Refused(
            pod, "NotEligibleForSuperNode", f"It cannot run on super nodes: {'; '.join(found.rules)}"
        )
    if found.misfit:
        return Refused(pod, "NoMatchingSuperNode", f"No room at home, and {found.misfit}: it waits")
    if full := destination.take(pod, bound=False):
        return Refused(pod, "SuperNodeCapReached", f"No room at home, and {full}: it waits")
    return Let(pod, f"no room at home, {case.inputs}: it may go to a super node")
