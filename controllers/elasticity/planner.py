"""Of the pods of one owner and revision, the first N are local; the others go to super nodes if one takes them.

A pending pod may go there, too, when no local node has room; one that super nodes do not take is given up. `plan` is
a function of its arguments: it says what is written, reported, and when to look again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from api.elasticity import LOCAL_REPLICAS, SUPER
from controllers.elasticity import tiers
from controllers.elasticity.patches import (
    Action,
    Kind,
    Patch,
    burst,
    cost_change,
    explained,
    is_kept_off,
    to_any_node,
    to_local_nodes,
    to_super_node,
)
from controllers.elasticity.pods import Pod
from controllers.elasticity.room import Objections, SuperNodes
from controllers.elasticity.snapshot import Ordinal, Policy, Siblings, Snapshot, is_readable
from settings.elasticity import HomeFailover

PATIENCE = 60.0
"""Seconds for which a pod waits for super nodes that are not ready: from its creation, or since they are not."""
STANDSTILL = 60.0
"""Seconds for which a rollout stands still before one of its pods is local instead; also those by which a pod may
outlive its grace period before it no longer counts as leaving."""
AT_ONCE, SOON, LATER = 0.0, 1.0, 5.0
"""Seconds to the next reconcile: for what the next event of another kind brings, for a state that no event reports,
and for pods that stay undecided."""
CAPPED = "SuperNodeCapReached"
"""The reason of the Event of a pod that waits for a cap or a budget."""
FOR_ROLLOUT = "LocalForRollout"
"""The same of one that is local instead, because a rollout waits for it."""
NO_OWNER = "Super nodes do not take it, and no controller would replace it: delete it, or make room there"


NO_ORDINAL = Ordinal()


class Place(StrEnum):
    LOCAL = "local"
    """It is one of the first N."""
    SUPER = "super"
    STAY = "stay"
    """It is none of them, but must not or cannot go to super nodes."""
    ANY = "any"
    """It tolerates super nodes, by itself or from now on, and the scheduler decides."""
    WAIT = "wait"
    """It goes to a super node when these have taken less than they may."""
    LOOK = "look"
    """It must be looked at more closely."""


@dataclass(frozen=True)
class Pending:
    """A pod that is gated or stuck, and what it asks for."""

    pod: Pod
    policy: Policy
    barred: str | None = None
    """Why super nodes are known not to take it."""
    ordinal: Ordinal = NO_ORDINAL
    asks: bool = False
    """Whether it asks for super nodes itself, and no other node suits it."""
    age: float = math.inf
    """Seconds since it was created."""

    @property
    def unknown(self) -> str | None:
        """What of its workload is not known yet."""
        return self.ordinal.unknown or self.policy.unknown


@dataclass(frozen=True)
class Placement:
    """*event* is the reason of an Event, when it is one that the user should see."""

    pending: Pending
    place: Place
    why: str
    event: str = ""

    @property
    def pod(self) -> Pod:
        return self.pending.pod


@dataclass(frozen=True)
class PodEvent:
    """To be reported once; most say why *pod* is not placed as it might be."""

    pod: Pod
    reason: str
    why: str
    type: Literal["Normal", "Warning"] = "Warning"


@dataclass(frozen=True)
class Past:
    """What this leader has seen of a key before.

    *rejected*: super nodes did not take its pods. *stalled*: the rollout goes on when one of the gated pods runs.
    *rests* is for how many seconds a pod is not to be written to, because a write was refused.
    """

    rejected: bool = False
    stalled: bool = False
    rests: Callable[[str], float] = lambda _: 0.0


@dataclass
class Plan:
    """*waits* say by uid what gated pods wait for, *again* are seconds, *to_look_up* are pods with unread volumes."""

    actions: list[Action] = field(default_factory=list)
    events: list[PodEvent] = field(default_factory=list)
    waits: dict[str, str] = field(default_factory=dict)
    again: list[float] = field(default_factory=list)
    to_look_up: list[Pod] = field(default_factory=list)
    is_short: bool = False
    """Whether a limit of super nodes is reached."""


def plan(snapshot: Snapshot, super_nodes: SuperNodes, past: Past) -> Plan:
    """*super_nodes* is the account of this plan, and of no other."""
    planner = _Planner(snapshot, super_nodes, past)
    planner.place_gated()
    planner.relieve_stuck()
    planner.finish_bound()
    quota, made = super_nodes.quota, planner.plan
    made.again += filter(None, [quota.opens_in])
    made.to_look_up, made.is_short = super_nodes.to_look_up, quota.was_short
    return made


class _Planner:
    def __init__(self, snapshot: Snapshot, super_nodes: SuperNodes, past: Past) -> None:
        self._snapshot, self._super_nodes, self._past = snapshot, super_nodes, past
        self._settings, self._nodes = snapshot.cluster.settings, snapshot.cluster.nodes
        self.plan = Plan()

    def place_gated(self) -> None:
        for action in self._snapshot.assumed.values():
            self.plan.waits[action.uid] = "it is decided, and the API server has not accepted it yet"
        if gated := self._at_work(self._snapshot.gated):
            pending, stalled = map(self._pending, gated), self._past.stalled
            for placement in place(pending, self._snapshot.siblings, self._super_nodes, stalled=stalled):
                self._take(placement)

    def relieve_stuck(self) -> None:
        """Those that the scheduler finds no room for."""
        if stuck := self._at_work(self._snapshot.stuck):
            self.plan.again.append(LATER)
            self._burst(stuck)
            self._give_up(stuck)

    def finish_bound(self) -> None:
        """Deletion costs, and what is wrong with pods that were never gated because of it."""
        for pod in self._snapshot.pods:
            if not pod.gated and not is_readable(pod, self._settings):
                self._policy(pod)
            if not self._settings.scale_in_order or pod.metadata.uid in self._snapshot.assumed:
                continue
            if (patch := cost_change(pod, self._nodes.names)) and self._at_work((pod,)):
                self._act(Kind.COST, pod, patch=patch)

    def _at_work(self, pods: Iterable[Pod]) -> list[Pod]:
        """Without those that rest."""
        pauses = [(pod, self._past.rests(pod.metadata.uid)) for pod in pods]
        self.plan.again += [pause for _, pause in pauses if pause]
        return [pod for pod, pause in pauses if not pause]

    def _pending(self, pod: Pod) -> Pending:
        return Pending(
            pod,
            self._policy(pod),
            self._barred(),
            self._snapshot.ordinal(pod),
            self._super_nodes.is_asked_for(pod),
            self._snapshot.age(pod),
        )

    def _barred(self) -> str | None:
        if not self._settings.home_failover.enabled:
            return None
        if not self._nodes.any_ready:
            return "no super node is ready"
        return "super nodes did not take its like" if self._past.rejected else None

    def _take(self, placement: Placement) -> None:
        pod, why = placement.pod, placement.why
        if placement.event:
            usual = placement.event == "LocalReplicasRestored"
            self.plan.events.append(PodEvent(pod, placement.event, why, "Normal" if usual else "Warning"))
        gpus = self._super_nodes.gpus
        match placement.place:
            case Place.WAIT | Place.LOOK:
                self.plan.waits[pod.metadata.uid] = why
                self.plan.again.append(_pause(placement))
                self._explain(pod, placement.event, why)
            case Place.SUPER:
                self._send(pod, why)
            case Place.ANY:
                self._act(Kind.ANY, pod, why, to_any_node(pod, why, gpus(pod)))
            case at:
                pin = at is Place.LOCAL and placement.pending.policy.pin
                self._act(Kind.LOCAL, pod, why, to_local_nodes(pod, why, pin=pin, gpus=gpus(pod)))

    def _send(self, pod: Pod, why: str) -> None:
        why = f"{why}{tiers.said(self._super_nodes.first_tier(pod, bound=True))}"
        with_cost, gpus = self._has_cost(pod), self._super_nodes.gpus(pod)
        patch = to_super_node(pod, why, with_cost=with_cost, tiers=self._settings.tiers, gpus=gpus)
        self._act(Kind.SUPER, pod, why, patch)

    def _burst(self, stuck: Iterable[Pod]) -> None:
        """One that tolerates super nodes is allowed there already."""
        if not self._nodes.names:
            return
        pending = [Pending(pod, self._policy(pod)) for pod in stuck if not pod.tolerates]
        for placement in relieve(pending, self._super_nodes):
            pod, why = placement.pod, placement.why
            if placement.place is Place.ANY:
                self._allow(pod, why)
            elif placement.place is Place.STAY:
                self.plan.events.append(PodEvent(pod, placement.event, why))
                self._explain(pod, placement.event, why)

    def _allow(self, pod: Pod, why: str) -> None:
        first = self._super_nodes.first_tier(pod, bound=False)
        why, also = f"{why}{tiers.said(first)}", tiers.tolerations(first, self._settings.tiers)
        with_cost, gpus = self._has_cost(pod), self._super_nodes.gpus(pod)
        self._act(Kind.BURST, pod, why, burst(pod, why, with_cost=with_cost, also=also, gpus=gpus))

    def _explain(self, pod: Pod, reason: str, why: str) -> None:
        """What it waits for is on the pod, too, as long as a limit is reached: that may be for hours."""
        if reason == CAPPED and (patch := explained(pod, why)):
            self._act(Kind.WAIT, pod, why, patch)

    def _give_up(self, stuck: Iterable[Pod]) -> None:
        settings = self._settings.home_failover
        for pod in stranded(stuck, settings, self._snapshot.now):
            if pod.metadata.controller is None:
                self.plan.events.append(PodEvent(pod, "NotTakenBySuperNode", NO_OWNER))
                continue
            why = f"Super nodes did not take it for {settings.home_after:g} s: its replacement stays local"
            self._act(Kind.DELETE, pod, why)

    def _act(self, kind: Kind, pod: Pod, why: str = "", patch: Patch | None = None) -> None:
        self.plan.actions.append(Action(kind, pod, why, patch))

    def _policy(self, pod: Pod) -> Policy:
        policy = self._snapshot.policy(pod)
        self.plan.events += (PodEvent(pod, reason, message) for reason, message in policy.problems)
        return policy

    def _has_cost(self, pod: Pod) -> bool:
        return self._settings.scale_in_order and pod.metadata.controller is not None


def _pause(placement: Placement) -> float:
    if placement.place is Place.WAIT:
        return LATER
    return AT_ONCE if placement.pending.unknown else SOON


def place(
    pending: Iterable[Pending], siblings: Siblings, super_nodes: SuperNodes, *, stalled: bool = False
) -> list[Placement]:
    """*pending* are those of one key, the oldest first. What goes to super nodes takes its place there.

    *stalled*: the rollout of their workload stands still until one of them runs.
    """
    placements = []
    for number, each in enumerate(pending):
        placement = _placement(each, siblings, super_nodes)
        if stalled and number == 0:
            placement = _for_rollout(placement)
        placements.append(placement)
        at = placement.place
        if at in (Place.SUPER, Place.ANY):
            super_nodes.add(each.pod, bound=at is Place.SUPER)
        local = siblings.local + (at in (Place.LOCAL, Place.STAY))
        siblings = Siblings(local, siblings.super + (at is Place.SUPER))
    return placements


def _placement(pending: Pending, siblings: Siblings, super_nodes: SuperNodes) -> Placement:
    policy = pending.policy
    if pending.unknown:
        return Placement(pending, Place.LOOK, f"{policy.inputs}: {pending.unknown}")
    if pending.asks:
        return _on_request(pending, super_nodes)
    if policy.replicas is None:
        if pending.pod.tolerates:
            return _by_toleration(pending, super_nodes)
        return Placement(pending, Place.STAY, f"{policy.inputs} {LOCAL_REPLICAS}=unset: stays local")
    return _by_number(pending, policy.replicas, siblings, super_nodes)


def _by_number(pending: Pending, number: int, siblings: Siblings, super_nodes: SuperNodes) -> Placement:
    ordinal = pending.ordinal.number
    before = siblings.local if ordinal is None else ordinal
    counted = f"{before} local" if ordinal is None else f"ordinal {before}"
    said = f"{pending.policy.inputs} {LOCAL_REPLICAS}={pending.policy.number}, {counted}"
    if before < number:
        if siblings.super and ordinal is None:
            why = (
                f"{said}, {siblings.super} on super nodes: stays local, to make up for the missing local ones"
            )
            return Placement(pending, Place.LOCAL, why, "LocalReplicasRestored")
        return Placement(pending, Place.LOCAL, f"{said}: stays local")
    if not pending.policy.allowed:
        return Placement(pending, Place.STAY, f"{said}: must stay local")
    if pending.barred:
        return Placement(pending, Place.STAY, f"{said}, {pending.barred}: stays local", "AllowedHomeAgain")
    found = super_nodes.objections(pending.pod, bound=True)
    if found is not None and not found.rules and found.misfit:
        if found.outage is not None and min(found.outage, pending.age) < PATIENCE:
            return Placement(pending, Place.LOOK, f"{said}: waits for {PATIENCE:g} s at most, {found.misfit}")
        return Placement(pending, Place.STAY, f"{said}: stays local, {found.misfit}", "NoMatchingSuperNode")
    return _sent(pending, said, found, super_nodes)


def _on_request(pending: Pending, super_nodes: SuperNodes) -> Placement:
    """A pod for which no other node would do is none of the first N: it could run nowhere."""
    policy, tolerates = pending.policy, pending.pod.tolerates
    said = f"{policy.inputs} {LOCAL_REPLICAS}={policy.number}, it asks for super nodes itself"
    if not (policy.allowed or tolerates):
        return Placement(pending, Place.STAY, f"{said}: must stay local")
    found = super_nodes.objections(pending.pod, bound=True)
    if found is None or found.rules or not found.misfit:
        return _sent(pending, said, found, super_nodes)
    at = Place.ANY if tolerates else Place.STAY
    return Placement(pending, at, f"{said}: left to the scheduler, {found.misfit}", "NoMatchingSuperNode")


def _by_toleration(pending: Pending, super_nodes: SuperNodes) -> Placement:
    said = "it tolerates super nodes itself"
    found = super_nodes.objections(pending.pod, bound=False)
    if found is None or found.rules:
        return _sent(pending, said, found, super_nodes)
    if refusal := super_nodes.refusal(pending.pod):
        return Placement(pending, Place.STAY, f"{said}: stays local, {refusal}", CAPPED)
    return Placement(pending, Place.ANY, f"{said}: left to the scheduler")


def _sent(pending: Pending, said: str, found: Objections | None, super_nodes: SuperNodes) -> Placement:
    if found is None:
        return Placement(pending, Place.LOOK, f"{said}: its volumes are looked at")
    if found.rules:
        why = f"{said}: stays local, it cannot run on super nodes: {'; '.join(found.rules)}"
        return Placement(pending, Place.STAY, why, "NotEligibleForSuperNode")
    if refusal := super_nodes.refusal(pending.pod):
        return Placement(pending, Place.WAIT, f"{said}: waits, {refusal}", CAPPED)
    return Placement(pending, Place.SUPER, f"{said}: to super node")


def _for_rollout(placement: Placement) -> Placement:
    """A cap holds; so the pod for which a rollout waits is local, if it can be, beyond the first N."""
    if placement.place is not Place.WAIT:
        return placement
    if placement.pending.asks:
        return replace(placement, why=f"{placement.why}; so does its rollout")
    why = f"{placement.why}; so would its rollout: stays local"
    return Placement(placement.pending, Place.STAY, why, FOR_ROLLOUT)


def relieve(stuck: Iterable[Pending], super_nodes: SuperNodes) -> list[Placement]:
    """*stuck* are the oldest first. What may go to super nodes takes its place there."""
    placements = []
    for pending in stuck:
        placement = _relief(pending, super_nodes)
        placements.append(placement)
        if placement.place is Place.ANY:
            super_nodes.add(pending.pod, bound=False)
    return placements


def _relief(pending: Pending, super_nodes: SuperNodes) -> Placement:
    pod, policy, no_room = pending.pod, pending.policy, "No local node has room, and"

    def stays(reason: str, why: str) -> Placement:
        return Placement(pending, Place.STAY, why, reason)

    if not policy.allowed:
        return stays("KeptLocal", f"{no_room} {policy.inputs}: it must stay local")
    if is_kept_off(pod):
        return stays("KeptLocal", f"{no_room} its affinity keeps it off super nodes: it waits")
    found = super_nodes.objections(pod, bound=False)
    if found is None:
        return Placement(pending, Place.LOOK, "its volumes are looked at")
    if found.rules:
        return stays("NotEligibleForSuperNode", f"It cannot run on super nodes: {'; '.join(found.rules)}")
    if found.misfit:
        return stays("NoMatchingSuperNode", f"{no_room} {found.misfit}: it waits")
    if refusal := super_nodes.refusal(pod):
        return stays(CAPPED, f"{no_room} {refusal}: it waits")
    return Placement(
        pending, Place.ANY, f"no local node has room, {policy.inputs}: it may go to a super node"
    )


def stranded(pods: Iterable[Pod], settings: HomeFailover, now: datetime) -> list[Pod]:
    """Those placed on super nodes for which there has been no room there for too long."""
    if not settings.enabled:
        return []
    longest = now - timedelta(seconds=settings.home_after)
    return [pod for pod in pods if pod.placed == SUPER and pod.stuck_since and pod.stuck_since <= longest]


def stands_still(pods: Iterable[Pod], key: str, deciding: Collection[str], now: datetime) -> bool:
    """Whether a rollout stands still because a pod of its newer revision, *key*, waits for a cap.

    A workload that may miss no pod keeps those of the older revision until one more of the newer one is ready. Where
    they fill the cap, each revision would wait for the other: others than those of *key* are ready, none is leaving,
    and none of *key* is starting. *pods* are all of a workload, *deciding* the uids of those whose placement is being
    written.
    """
    pods = [pod for pod in pods if not pod.finished]
    active = [pod for pod in pods if pod.active]
    if not any(pod.ready for pod in active if pod.key != key):
        return False
    own = [pod for pod in active if pod.key == key]
    is_starting = any(pod.metadata.uid in deciding or not (pod.gated or pod.ready) for pod in own)
    return not is_starting and not any(_is_leaving(pod, now) for pod in pods)


def _is_leaving(pod: Pod, now: datetime) -> bool:
    ends = pod.metadata.deletion_timestamp
    return ends is not None and now < ends + timedelta(seconds=STANDSTILL)
