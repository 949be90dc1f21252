"""Of the pods of one owner and revision, the first N are local; the others go to super nodes if one takes them.

A pending pod may go there, too, when no local node has room; one that super nodes do not take is given up. `plan` is
a function of its arguments: it says what is written, reported, and when to look again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from api.elasticity import BURST, LOCAL_REPLICAS, REASON, SUPER
from controllers.elasticity.nodes import tier_tolerations
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
from controllers.elasticity.room import Objections, SuperNodes, waits
from controllers.elasticity.snapshot import DECIDED, Location, Policy, Snapshot, is_readable
from controllers.elasticity.unstarted import AGAIN, Verdict

PATIENCE = 60.0
"""Seconds for which a pod waits for super nodes that are not ready: since it is there, or since they are not.

So long it waits for a preemption that evicts no pod, too.
"""
STANDSTILL = 60.0
"""Seconds for which a rollout stands still before one of its pods is local instead; also those by which a pod may
outlive its grace period before it no longer counts as leaving, and makes no room for a preemption."""
AT_ONCE, SOON, LATER = 0.0, 1.0, 5.0
"""Seconds to the next reconcile: for what the next event of another kind brings, for a state that no event reports,
and for pods that stay undecided."""
LONGEST = 4096
"""Characters of a reason: the API server takes 256 KiB of annotations, and a pod may name thousands of nodes."""
CAPPED = "SuperNodeCapReached"
"""The reason of the Event of a pod that waits for a cap or a budget."""
FOR_ROLLOUT = "LocalForRollout"
"""The same of one that is local instead, because a rollout waits for it."""
RESTORED = "LocalReplicasRestored"
NO_ROOM = "No local node has room, and"
ASKED, AVOIDS = "it asks for super nodes itself", ", avoids "
"""Parts of reasons."""
NO_OWNER = "Super nodes do not take it, and no controller would replace it: delete it, or make room there"
COMPLETES = (
    "Super nodes do not take it, and its controller may count its deletion as a failure, because it runs to completion:"
    " delete it, or make room there"
)
NO_OTHER = f"Super nodes do not take it, and {ASKED}, as its replacement would: make room there"


@dataclass(frozen=True)
class Placement:
    """What becomes of a pod that is gated or stuck: WAIT is for the next look, in *pause* seconds.

    *event* is the reason of an Event, when it is one that the user should see.
    """

    kind: Kind
    why: str
    event: str = ""
    pause: float = LATER
    pin: bool = False


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

    *stalled*: the rollout goes on when one of the gated pods runs. *rests* is for how many seconds a pod is not to be
    written to, because a write was refused, and *denied* whether that is for good. *waited* is for how many seconds a
    pod has had no super node, or has not started on its own, and *verdict* what is known of it. *leaving* is for how
    many seconds a pod has been seen to terminate, by its uid, as the first two.
    """

    stalled: bool = False
    rests: Callable[[str], float] = lambda _: 0.0
    denied: Callable[[str], bool] = lambda _: False
    waited: Callable[[Pod], float] = lambda _: 0.0
    verdict: Callable[[Pod], Verdict | None] = lambda _: None
    leaving: Callable[[str], float] = lambda _: 0.0


@dataclass
class Plan:
    """*waits* say by uid what gated pods wait for, *again* are seconds; Events of those *to_look_up* are read."""

    actions: list[Action] = field(default_factory=list)
    events: list[PodEvent] = field(default_factory=list)
    waits: dict[str, str] = field(default_factory=dict)
    again: list[float] = field(default_factory=list)
    to_look_up: list[Pod] = field(default_factory=list)


def plan(snapshot: Snapshot, super_nodes: SuperNodes, past: Past) -> Plan:
    """*super_nodes* is the account of this plan, and of no other: what goes to super nodes takes its place there."""
    planner = _Planner(snapshot, super_nodes, past)
    planner.place_gated()
    planner.relieve_stuck()
    planner.give_up_unstarted()
    planner.finish_bound()
    if snapshot.is_overtaken:
        planner.plan.again.append(SOON)
    return planner.plan


class _Planner:
    def __init__(self, snapshot: Snapshot, super_nodes: SuperNodes, past: Past) -> None:
        self._snapshot, self._super_nodes, self._past = snapshot, super_nodes, past
        self._settings, self._nodes = snapshot.cluster.settings, snapshot.cluster.nodes
        self._siblings = snapshot.siblings
        self.plan = Plan()

    def place_gated(self) -> None:
        """The oldest first."""
        for action in self._snapshot.assumed.values():
            self.plan.waits[action.uid] = "it is decided, but the API server has not accepted the write yet"
        for number, pod in enumerate(self._at_work(self._snapshot.gated)):
            policy = self._policy(pod)
            placement = self._placement(pod, policy)
            if self._past.stalled and number == 0:
                placement = self._for_rollout(pod, placement)
            if placement.kind in DECIDED:
                self._siblings[DECIDED[placement.kind]] += 1
            self._carry_out(pod, placement)

    def relieve_stuck(self) -> None:
        """Those that the scheduler finds no room for. One that tolerates super nodes is allowed there already."""
        if stuck := self._at_work(self._snapshot.stuck):
            self.plan.again.append(LATER)
            stuck = [pod for pod in stuck if not self._is_preempting(pod)]
            for pod in stuck if self._nodes.super else ():
                if not pod.tolerates:
                    self._carry_out(pod, self._relief(pod, self._policy(pod)))
            self._give_up(stuck)

    def _is_preempting(self, pod: Pod) -> bool:
        """Whether others are evicted to make room for it. The chosen node may stay in its status indefinitely."""
        if not (node := pod.unbound.nominated):
            return False
        leaving = self._super_nodes.leaving(node)
        return self._past.waited(pod) < PATIENCE or any(
            _is_in_time(each, self._past.leaving(each.metadata.uid)) for each in leaving
        )

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

    def _policy(self, pod: Pod) -> Policy:
        policy = self._snapshot.policy(pod)
        self.plan.events += (PodEvent(pod, reason, message) for reason, message in policy.problems)
        return policy

    def _placement(self, pod: Pod, policy: Policy) -> Placement:
        """Of a gated pod."""
        inputs = policy.inputs
        if policy.unknown:
            return Placement(Kind.WAIT, f"{inputs}: {policy.unknown}", pause=AT_ONCE)
        if self._super_nodes.is_asked_for(pod):
            return self._on_request(pod, policy)
        if policy.replicas is not None:
            return self._by_number(pod, policy, policy.replicas)
        if not pod.tolerates:
            return Placement(Kind.LOCAL, f"{inputs} {LOCAL_REPLICAS}=unset: stays local")
        said = "it tolerates super nodes itself"
        found = self._super_nodes.objections(pod, bound=False)
        if found is None or found.rules:
            return self._sent(pod, said, found)
        if self._settings.max_super_pods.is_limited and found.for_others:
            return Placement(Kind.LOCAL, f"{said}: stays local, {found.misfit}")
        if refusal := self._super_nodes.quota.refusal(pod):
            return Placement(Kind.LOCAL, f"{said}: stays local, {refusal}", CAPPED)
        return Placement(Kind.ANY, f"{said}: left to the scheduler")

    def _by_number(self, pod: Pod, policy: Policy, number: int) -> Placement:
        before, there = self._siblings[Location.LOCAL], self._siblings[Location.SUPER]
        counted = f"{before} local"
        if policy.ordinal is not None:
            before, there, counted = policy.ordinal, 0, f"ordinal {policy.ordinal}"
        said = f"{policy.inputs} {LOCAL_REPLICAS}={policy.number}, {counted}"
        if before < number:
            why, event = f"{said}: stays local", ""
            if there:
                why = f"{said}, {there} on super nodes: stays local, to make up for the missing local ones"
                event = RESTORED
            return Placement(Kind.LOCAL, why, event, pin=policy.pin)
        if not policy.allowed:
            return Placement(Kind.LOCAL, f"{said}: must stay local")
        if self._settings.home_failover.enabled and (barred := self._why_barred()):
            return Placement(Kind.LOCAL, f"{said}, {barred}: stays local", "AllowedHomeAgain")
        found = self._super_nodes.objections(pod, bound=True)
        if found is None or not found.misfit:
            return self._sent(pod, said, found)
        if found.outage is not None and min(found.outage, self._snapshot.age(pod)) < PATIENCE:
            waits = f"{said}: waits for {PATIENCE:g} s at most, {found.misfit}"
            return Placement(Kind.WAIT, waits, pause=SOON)
        return Placement(Kind.LOCAL, f"{said}: stays local, {found.misfit}", "NoMatchingSuperNode")

    def _why_barred(self) -> str | None:
        if not any(node.ready for node in self._nodes.super):
            return "no super node is ready"
        return "super nodes did not take pods like it" if "" in self._snapshot.avoided else None

    def _on_request(self, pod: Pod, policy: Policy) -> Placement:
        """A pod for which no other node would do is none of the first N: it could run nowhere."""
        said = f"{policy.inputs} {LOCAL_REPLICAS}={policy.number}, {ASKED}"
        if not (policy.allowed or pod.tolerates):
            return Placement(Kind.LOCAL, f"{said}: must stay local")
        found = self._super_nodes.objections(pod, bound=True)
        # One that tolerates them goes there, past all caps, as soon as they fit.
        is_capped = pod.tolerates and self._super_nodes.quota.refusal(pod)
        if found is None or not found.misfit or is_capped:
            return self._sent(pod, said, found)
        kind = Kind.ANY if pod.tolerates else Kind.LOCAL
        return Placement(kind, f"{said}: left to the scheduler, {found.misfit}", "NoMatchingSuperNode")

    def _sent(self, pod: Pod, said: str, found: Objections | None) -> Placement:
        if found is None:
            return Placement(Kind.WAIT, f"{said}: its volumes are being checked", pause=SOON)
        if found.rules:
            why = f"{said}: stays local, it cannot run on super nodes: {'; '.join(found.rules)}"
            return Placement(Kind.LOCAL, why, "NotEligibleForSuperNode")
        if refusal := self._super_nodes.quota.refusal(pod):
            return Placement(Kind.WAIT, f"{said}: waits, {refusal}", CAPPED)
        if self._past.denied(pod.metadata.uid):
            return Placement(Kind.LOCAL, f"{said}: stays local, its placement on a super node is refused")
        return Placement(Kind.SUPER, f"{said}: to super node")

    def _for_rollout(self, pod: Pod, placement: Placement) -> Placement:
        """A cap holds; so the pod for which a rollout waits is local, if it can be, beyond the first N."""
        if placement.kind is not Kind.WAIT or placement.event != CAPPED:
            return placement
        if self._super_nodes.is_asked_for(pod):
            return replace(placement, why=f"{placement.why}; so does its rollout")
        return Placement(Kind.LOCAL, f"{placement.why}; so would its rollout: stays local", FOR_ROLLOUT)

    def _relief(self, pod: Pod, policy: Policy) -> Placement:
        """Of a stuck pod."""

        def stays(event: str, why: str) -> Placement:
            return Placement(Kind.WAIT, why, event)

        if not policy.allowed:
            return stays("KeptLocal", f"{NO_ROOM} {policy.inputs}: it must stay local")
        if is_kept_off(pod):
            return stays("KeptLocal", f"{NO_ROOM} its affinity keeps it off super nodes: it waits")
        if self._snapshot.is_pinned(pod, policy) and not self._super_nodes.is_asked_for(pod):
            return stays(
                "KeptLocal", f"{NO_ROOM} it is one of the first {policy.number}, which are pinned: it waits"
            )
        if BURST in pod.metadata.annotations:
            return stays("KeptLocal", f"{NO_ROOM} others took its toleration of super nodes back: it waits")
        found = self._super_nodes.objections(pod, bound=False)
        if found is None:
            return stays("", "its volumes are being checked")
        if found.rules:
            return stays("NotEligibleForSuperNode", f"It cannot run on super nodes: {'; '.join(found.rules)}")
        if found.misfit:
            return stays("NoMatchingSuperNode", f"{NO_ROOM} {found.misfit}: it waits")
        if refusal := self._super_nodes.quota.refusal(pod):
            return stays(CAPPED, f"{NO_ROOM} {refusal}: it waits")
        return Placement(Kind.BURST, f"no local node has room, {policy.inputs}: it may go to a super node")

    def _carry_out(self, pod: Pod, placement: Placement) -> None:
        kind, why, event = placement.kind, placement.why[:LONGEST], placement.event
        if event:
            self.plan.events.append(PodEvent(pod, event, why, "Normal" if event == RESTORED else "Warning"))
        gpus = self._super_nodes.gpus(pod)
        if kind is Kind.WAIT:
            if pod.gated:
                self.plan.waits[pod.metadata.uid] = why
            self.plan.again.append(placement.pause)
            # That a limit is reached is on the pod, too, which may be for hours; and what it waits for instead.
            if (event == CAPPED or (event and waits(pod))) and (patch := explained(pod, why)):
                self._act(kind, pod, why, patch)
        elif kind is Kind.LOCAL:
            self._act(kind, pod, why, to_local_nodes(pod, why, pin=placement.pin, gpus=gpus))
        elif kind is Kind.ANY:
            self._super_nodes.add(pod, bound=False)
            self._act(kind, pod, why, to_any_node(pod, why, gpus))
        else:
            self._send(pod, kind, why)

    def _send(self, pod: Pod, kind: Kind, why: str) -> None:
        """To super nodes, or with the permission to go there."""
        first = self._super_nodes.first_tier(pod)
        self._super_nodes.add(pod, bound=kind is Kind.SUPER)
        why = f"{why}, tier {first} first" if first else why
        gpus, tiers = self._super_nodes.gpus(pod), self._settings.tiers
        in_order = self._settings.scale_in_order
        if kind is Kind.SUPER:
            avoided = self._nodes.names & self._snapshot.avoided.keys()
            why += f"{AVOIDS}{', '.join(sorted(avoided))}" if avoided else ""
            patch = to_super_node(pod, why, in_order=in_order, tiers=tiers, gpus=gpus, avoided=avoided)
        else:
            also = tier_tolerations(first, tiers)
            patch = burst(pod, why, in_order=in_order, also=also, gpus=gpus)
        self._act(kind, pod, why, patch)

    def _give_up(self, stuck: Iterable[Pod]) -> None:
        """Those placed on super nodes for which there has been no room there for too long, if another node would do."""
        settings = self._settings.home_failover
        for pod in stuck if settings.enabled else ():
            if pod.placed != SUPER or self._past.waited(pod) < settings.home_after:
                continue
            said = pod.metadata.annotations.get(REASON, "")
            if ASKED in said and AVOIDS not in said:
                self.plan.events.append(PodEvent(pod, "NotTakenBySuperNode", NO_OTHER))
                continue
            why = f"Super nodes did not take it for {settings.home_after:g} s: its replacement stays local"
            self._delete(pod, why)

    def give_up_unstarted(self) -> None:
        """Those that a super node accepted too long ago, unless they came there although it is avoided."""
        settings = self._settings.home_failover
        for pod in self._at_work(self._snapshot.unstarted) if settings.enabled else ():
            waited, name = self._past.waited(pod), pod.node_name
            if (left := settings.home_after - waited) > 0:
                self.plan.again.append(left)
            elif waited < self._snapshot.avoided.get(name, 0.0):
                self.plan.again.append(LATER)
            elif (verdict := self._past.verdict(pod)) is None:
                self.plan.to_look_up.append(pod)
            elif verdict.at_work:
                self.plan.again.append(AGAIN)
            else:
                said = f" ({verdict.said})" if verdict.said else ""
                why = (
                    f"{name} did not start it for {settings.home_after:g} s{said}: its replacement avoids it"
                )
                self._delete(pod, why)

    def _delete(self, pod: Pod, why: str) -> None:
        """Unless nothing replaced it, or that might count as a failure."""
        owner = pod.metadata.controller
        if owner is None or pod.completes:
            why = NO_OWNER if owner is None else COMPLETES
            self.plan.events.append(PodEvent(pod, "NotTakenBySuperNode", why))
        else:
            self._act(Kind.DELETE, pod, why)

    def _act(self, kind: Kind, pod: Pod, why: str = "", patch: Patch | None = None) -> None:
        self.plan.actions.append(Action(kind, pod, why, patch))


def stands_still(
    pods: Iterable[Pod], key: str, deciding: Collection[str], leaving: Mapping[str, float]
) -> bool:
    """Whether a rollout stands still because a pod of its newer revision, *key*, waits for a cap.

    A workload that may miss no pod keeps those of the older revision, ready or not, until one more of the newer one is
    ready. Where they fill the cap, each revision would wait for the other: others than those of *key* are placed, none
    is leaving, and none of *key* is starting. *pods* are all of a workload, *deciding* the uids of those whose
    placement is being written; *leaving* are the seconds, by uid, for which this leader has seen that pods terminate.
    """
    pods = [pod for pod in pods if not pod.finished]
    active = [pod for pod in pods if pod.active]
    if all(pod.gated for pod in active if pod.key != key):
        return False
    own = [pod for pod in active if pod.key == key]
    is_starting = any(pod.metadata.uid in deciding or not (pod.gated or pod.ready) for pod in own)
    is_leaving = any(
        _is_in_time(pod, leaving[pod.metadata.uid]) for pod in pods if pod.metadata.deletion_timestamp
    )
    return not is_starting and not is_leaving


def _is_in_time(pod: Pod, leaving: float) -> bool:
    """Whether a pod that has been *leaving* for so many seconds is about to end."""
    return leaving < (pod.metadata.deletion_grace_period_seconds or 0) + STANDSTILL
