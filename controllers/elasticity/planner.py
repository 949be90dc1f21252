"""Of the pods of one owner and revision, the first N are local; the others go to super nodes if one takes them.

A pending pod may go there, too, when no local node has room; one that super nodes do not take is given up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, Protocol

from api.elasticity import LOCAL_REPLICAS, SUPER
from controllers.elasticity.annotations import Wish
from controllers.elasticity.patches import is_kept_off
from controllers.elasticity.pods import Pod
from settings.elasticity import HomeFailover

PATIENCE = 60.0
"""Seconds for which a pod waits for super nodes that are not ready: from its creation, or since they are not."""
CAPPED = "SuperNodeCapReached"
"""The reason of the Event of a pod that waits for a cap or a budget."""
FOR_ROLLOUT = "LocalForRollout"
"""The same of one that is local instead, because a rollout waits for it."""
NO_OWNER = "Super nodes do not take it, and no controller would replace it: delete it, or make room there"


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
    STAY = "stay"
    """It is none of them, but must not or cannot go to super nodes."""
    ANY = "any"
    """It tolerates super nodes by itself, and the scheduler decides."""
    WAIT = "wait"
    """It goes to a super node when these have taken less than they may."""
    LOOK = "look"
    """It must be looked at more closely."""


@dataclass(frozen=True)
class Siblings:
    """How many pods of a key are where."""

    local: int = 0
    super: int = 0

    def with_one(self, place: Place) -> Siblings:
        return Siblings(
            self.local + (place in (Place.LOCAL, Place.STAY)), self.super + (place is Place.SUPER)
        )


@dataclass(frozen=True)
class Ordinal:
    """Of a pod of a StatefulSet, counted from its first; *unknown* says what is not known yet."""

    number: int | None = None
    unknown: str = ""


@dataclass(frozen=True)
class Case:
    """A pod that is gated or stuck, and what it wishes."""

    pod: Pod
    wish: Wish
    barred: str = ""
    """Why super nodes are known not to take it."""
    ordinal: Ordinal = Ordinal()
    asks: bool = False
    """Whether it asks for super nodes itself, and no other node suits it."""
    age: float = math.inf
    """Seconds since it was created."""

    @property
    def unknown(self) -> str:
        """What of its workload is not known yet."""
        return self.ordinal.unknown or self.wish.unknown


@dataclass(frozen=True)
class Verdict:
    case: Case
    place: Place
    why: str
    exception: str = ""
    """The reason of an Event, when it is one that the user should see."""

    @property
    def pod(self) -> Pod:
        return self.case.pod


@dataclass(frozen=True)
class Objections:
    """All that keeps a pod off super nodes: limits that it breaks, and that none of them takes it now."""

    rules: tuple[str, ...] = ()
    misfit: str = ""
    outage: float | None = None
    """Seconds for which a super node has been in a state that is all it misses; None when there is no such node."""


class Destination(Protocol):
    """Super nodes as pods are sent there; *bound* to them is a pod that may run nowhere else."""

    def objections(self, pod: Pod, *, bound: bool) -> Objections | None:
        """None while that is not known."""

    def take(self, pod: Pod, *, bound: bool) -> str:
        """Nothing when there was room under the cap, and it is *pod*'s now; else which limit is reached."""


def standing(pod: Pod, super_nodes: frozenset[str]) -> Standing:
    """A pod without a placement counts as local before it is bound, too.

    One that was placed on super nodes can be nowhere else, also when its node is not known yet, or is gone.
    """
    if not pod.active:
        return Standing.OVER
    if pod.node_name and pod.placed != SUPER:
        return Standing.SUPER if pod.node_name in super_nodes else Standing.LOCAL
    if pod.gated:
        return Standing.GATED
    return Standing.SUPER if pod.placed == SUPER else Standing.LOCAL


def plan(
    cases: Iterable[Case], siblings: Siblings, destination: Destination, *, stalled: bool = False
) -> list[Verdict]:
    """*cases* are those of one key, the oldest first. What goes to super nodes takes its place there.

    *stalled*: the rollout of their workload stands still until one of them runs.
    """
    verdicts = []
    for number, case in enumerate(cases):
        verdict = _verdict(case, siblings, destination)
        if stalled and number == 0:
            verdict = _for_rollout(verdict)
        verdicts.append(verdict)
        siblings = siblings.with_one(verdict.place)
    return verdicts


def _verdict(case: Case, siblings: Siblings, destination: Destination) -> Verdict:
    if case.unknown:
        return Verdict(case, Place.LOOK, f"{case.wish.inputs}: {case.unknown}")
    if case.asks:
        return _on_request(case, destination)
    if case.wish.replicas is None:
        if case.pod.tolerates:
            return _by_toleration(case, destination)
        return Verdict(case, Place.STAY, f"{case.wish.inputs} {LOCAL_REPLICAS}=unset: stays local")
    return _by_number(case, case.wish.replicas, siblings, destination)


def _by_number(case: Case, number: int, siblings: Siblings, destination: Destination) -> Verdict:
    ordinal = case.ordinal.number
    before = siblings.local if ordinal is None else ordinal
    counted = f"{before} local" if ordinal is None else f"ordinal {before}"
    said = f"{case.wish.inputs} {LOCAL_REPLICAS}={case.wish.number}, {counted}"
    if before < number:
        if siblings.super and ordinal is None:
            why = (
                f"{said}, {siblings.super} on super nodes: stays local, to make up for the missing local ones"
            )
            return Verdict(case, Place.LOCAL, why, "LocalReplicasRestored")
        return Verdict(case, Place.LOCAL, f"{said}: stays local")
    if not case.wish.allowed:
        return Verdict(case, Place.STAY, f"{said}: must stay local")
    if case.barred:
        return Verdict(case, Place.STAY, f"{said}, {case.barred}: stays local", "AllowedHomeAgain")
    found = destination.objections(case.pod, bound=True)
    if found is not None and not found.rules and found.misfit:
        if found.outage is not None and min(found.outage, case.age) < PATIENCE:
            return Verdict(case, Place.LOOK, f"{said}: waits for {PATIENCE:g} s at most, {found.misfit}")
        return Verdict(case, Place.STAY, f"{said}: stays local, {found.misfit}", "NoMatchingSuperNode")
    return _sent(case, said, found, destination)


def _on_request(case: Case, destination: Destination) -> Verdict:
    """A pod for which no other node would do is none of the first N: it could run nowhere."""
    said = f"{case.wish.inputs} {LOCAL_REPLICAS}={case.wish.number}, it asks for super nodes itself"
    if not (case.wish.allowed or case.pod.tolerates):
        return Verdict(case, Place.STAY, f"{said}: must stay local")
    found = destination.objections(case.pod, bound=True)
    if found is None or found.rules or not found.misfit:
        return _sent(case, said, found, destination)
    place = Place.ANY if case.pod.tolerates else Place.STAY
    return Verdict(case, place, f"{said}: left to the scheduler, {found.misfit}", "NoMatchingSuperNode")


def _by_toleration(case: Case, destination: Destination) -> Verdict:
    said = "it tolerates super nodes itself"
    found = destination.objections(case.pod, bound=False)
    if found is None or found.rules:
        return _sent(case, said, found, destination)
    if full := destination.take(case.pod, bound=False):
        return Verdict(case, Place.STAY, f"{said}: stays local, {full}", CAPPED)
    return Verdict(case, Place.ANY, f"{said}: left to the scheduler")


def _sent(case: Case, said: str, found: Objections | None, destination: Destination) -> Verdict:
    if found is None:
        return Verdict(case, Place.LOOK, f"{said}: its volumes are looked at")
    if found.rules:
        why = f"{said}: stays local, it cannot run on super nodes: {'; '.join(found.rules)}"
        return Verdict(case, Place.STAY, why, "NotEligibleForSuperNode")
    if full := destination.take(case.pod, bound=True):
        return Verdict(case, Place.WAIT, f"{said}: waits, {full}", CAPPED)
    return Verdict(case, Place.SUPER, f"{said}: to super node")


def _for_rollout(verdict: Verdict) -> Verdict:
    """A cap holds; so the pod for which a rollout waits is local, if it can be, beyond the first N."""
    if verdict.place is not Place.WAIT:
        return verdict
    if verdict.case.asks:
        return replace(verdict, why=f"{verdict.why}; so does its rollout")
    return Verdict(verdict.case, Place.STAY, f"{verdict.why}; so would its rollout: stays local", FOR_ROLLOUT)


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
    return pod.stuck_since is not None and not pod.tolerates


def plan_bursts(stuck: Iterable[Case], destination: Destination) -> list[Burst | Refused]:
    """*stuck* are the oldest first; there is no result for one whose volumes must be looked up."""
    return [each for case in stuck if (each := _judged(case, destination))]


def _judged(case: Case, destination: Destination) -> Burst | Refused | None:
    pod, wish, no_room = case.pod, case.wish, "No local node has room, and"
    if not wish.allowed:
        return Refused(pod, "KeptAtHome", f"{no_room} {wish.inputs}: it must stay local")
    if is_kept_off(pod):
        return Refused(pod, "KeptAtHome", f"{no_room} its affinity keeps it off super nodes: it waits")
    found = destination.objections(pod, bound=False)
    if found is None:
        return None
    if found.rules:
        why = f"It cannot run on super nodes: {'; '.join(found.rules)}"
        return Refused(pod, "NotEligibleForSuperNode", why)
    if found.misfit:
        return Refused(pod, "NoMatchingSuperNode", f"{no_room} {found.misfit}: it waits")
    if full := destination.take(pod, bound=False):
        return Refused(pod, CAPPED, f"{no_room} {full}: it waits")
    return Burst(pod, f"no local node has room, {wish.inputs}: it may go to a super node")


def stranded(pods: Iterable[Pod], settings: HomeFailover, now: datetime) -> list[Pod]:
    """Those placed on super nodes for which there has been no room there for too long."""
    if not settings.enabled:
        return []
    longest = now - timedelta(seconds=settings.home_after)
    return [pod for pod in pods if pod.placed == SUPER and pod.stuck_since and pod.stuck_since <= longest]
