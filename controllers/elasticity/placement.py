"""Of the pods of one owner and revision, the first N stay at home; the others go to super nodes if they may."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from controllers.elasticity.caps import Room
from controllers.elasticity.pods import Pod
from webhook.elasticity import LOCAL_REPLICAS, SUPER


class Standing(StrEnum):
    """What a pod counts as."""

    GATED = "gated"
    LOCAL = "local"
    SUPER = "super"
    OVER = "over"


class Place(StrEnum):
    LOCAL = "local"
    """It is one of the first N."""
    SUPER = "super"
    HOME = "home"
    """It is beyond them, but must not leave."""
    WAIT = "wait"
    """It is beyond them, and super nodes have taken as many as they may."""
    LOOK = "look"
    """It is beyond them, and must be looked at more closely."""


@dataclass(frozen=True)
class Case:
    """A gated pod; *replicas* is None when it has no N, *inputs* say in words why it is *allowed* or not."""

    pod: Pod
    replicas: int | None
    allowed: bool
    inputs: str
    barred: str = ""
    """Why super nodes are known not to take it."""


@dataclass(frozen=True)
class Verdict:
    case: Case
    place: Place
    why: str
    exception: str = ""
    """The reason of an Event, when it is one that the user should hear of."""

    @property
    def pod(self) -> Pod:
        return self.case.pod


Violations = Callable[[Pod], tuple[str, ...] | None]
"""All that keeps a pod off super nodes; None while that is not known."""


def standing(pod: Pod, super_nodes: frozenset[str]) -> Standing:
    """A pod that nobody has placed counts as local before it is bound, too: nothing else was said of it.

    One that was sent can be nowhere else, also when its node is not known yet, or is gone.
    """
    if not pod.active:
        return Standing.OVER
    if pod.node_name and pod.placed != SUPER:
        return Standing.SUPER if pod.node_name in super_nodes else Standing.LOCAL
    if pod.gated:
        return Standing.GATED
    return Standing.SUPER if pod.placed == SUPER else Standing.LOCAL


def plan(
    cases: Iterable[Case], local: Mapping[str, int], violations: Violations, room: Room
) -> list[Verdict]:
    """*cases* are the oldest first; *local* says how many of each key are at home. What goes takes its *room*."""
    at_home = dict(local)
    verdicts = []
    for case in cases:
        key = case.pod.key
        verdict = _verdict(case, at_home.get(key, 0), violations, room)
        verdicts.append(verdict)
        if verdict.place in (Place.LOCAL, Place.HOME):
            at_home[key] = at_home.get(key, 0) + 1
    return verdicts


def _verdict(case: Case, local: int, violations: Violations, room: Room) -> Verdict:
    if case.replicas is None:
        return Verdict(case, Place.HOME, f"{case.inputs} {LOCAL_REPLICAS}=unset: stays home")
    said = f"{case.inputs} {LOCAL_REPLICAS}={case.replicas}, {local} local"
    if local < case.replicas:
        return Verdict(case, Place.LOCAL, f"{said}: stays home")
    if not case.allowed:
        return Verdict(case, Place.HOME, f"{said}: must stay home")
    if case.barred:
        return Verdict(case, Place.HOME, f"{said}, {case.barred}: stays home", "AllowedHomeAgain")
    found = violations(case.pod)
    if found is None:
        return Verdict(case, Place.LOOK, f"{said}: its volumes are looked at")
    if found:
        why = f"{said}: stays home, it cannot run on super nodes: {'; '.join(found)}"
        return Verdict(case, Place.HOME, why, "NotEligibleForSuperNode")
    if full := room.take(case.pod):
        return Verdict(case, Place.WAIT, f"{said}: waits, {full}", "SuperNodeCapReached")
    return Verdict(case, Place.SUPER, f"{said}: to super node")
