"""Turn by turn, one thread decides where each pod belongs, so that no number is ever exceeded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from controllers.elasticity import burst_plan, failover
from controllers.elasticity.annotations import Wish
from controllers.elasticity.burst_plan import Let, Refused, Stuck
from controllers.elasticity.deletion_cost import cost_to_change
from controllers.elasticity.destination import Requests, SuperNodeDestination, under_way
from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.failover import Refusals
from controllers.elasticity.fleet import Fleet
from controllers.elasticity.ordinals import ordinal_of, stateful_set_of
from controllers.elasticity.outages import Outages
from controllers.elasticity.patches import (
    burst,
    cost_change,
    is_kept_off,
    to_any_node,
    to_home,
    to_super_node,
)
from controllers.elasticity.pending_writes import Do, Intent
from controllers.elasticity.placement import Case, Place, Verdict, plan
from controllers.elasticity.pods import Pod, oldest_first
from controllers.elasticity.quota import Room
from controllers.elasticity.reporter import Reporter
from controllers.elasticity.snapshot import Scene
from controllers.elasticity.writer import Writer
from webhook.elasticity import LOCAL_REPLICAS, SWITCH

SOON, LATER = 1.0, 5.0
"""Seconds to the next turn when something is waited for that nobody will tell us, and otherwise."""
PATIENCE = 10.0
"""Seconds from its creation for which a pod waits until its StatefulSet is known."""

TAKING_OVER = "the leader is new, and makes sure that nothing the former one decided still arrives"


class Reconciler:
    """*scene* is asked for at the beginning of each turn; *clock* is monotonic, *now* the time of day."""

    def __init__(
        self,
        scene: Callable[[], Scene],
        writer: Writer,
        eligibility: Eligibility,
        reporter: Reporter,
        *,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._scene, self._writer, self._eligibility, self._reporter = scene, writer, eligibility, reporter
        self._now = now
        self._refusals, self._outages = Refusals(clock), Outages(clock)
        self._requests = Requests()
        self._costs_by: tuple[frozenset[str], bool] = (frozenset(), False)
        self._costs_due: set[str] = set()

    def turn(self) -> float:
        """Decide all that can be decided; the seconds after which to look again, unasked. LeadershipLost."""
        if self._writer.lost:
            raise self._writer.lost
        self._writer.repeat()
        scene = self._scene()
        unbound = scene.book.having("unbound")
        destination = self._destination(scene)
        verdicts = self._verdicts(scene, destination)
        self._writer.start([intent for each in verdicts if (intent := self._intent(each, scene))])
        self._say_who_waits(scene, verdicts)
        self._writer.start(self._bursts(scene, unbound, destination))
        self._writer.start(self._given_up(scene, unbound))
        changed = scene.book.take_changed()
        self._tell_problems(scene, changed)
        self._writer.start(self._costs(scene, changed))
        self._tidy(scene, unbound)
        waits = any(each.place in (Place.WAIT, Place.LOOK) for each in verdicts)
        return SOON if waits or self._writer.under_way() else LATER

    def _say_who_waits(self, scene: Scene, verdicts: Iterable[Verdict]) -> None:
        why = dict.fromkeys(scene.under_way, "it is decided, and the API server has not taken it yet")
        why |= {
            each.pod.metadata.uid: each.why for each in verdicts if each.place in (Place.WAIT, Place.LOOK)
        }
        self._reporter.waiting(scene.book.having("gated"), why, TAKING_OVER)

    def _destination(self, scene: Scene) -> SuperNodeDestination:
        sent = scene.sent()
        room = Room(scene.settings.max_super_pods, (pod.metadata.namespace for pod in sent))
        fleet = Fleet(scene.nodes, scene.book.having, under_way(sent, self._requests))
        self._outages.observe(scene.nodes.super)
        return SuperNodeDestination(
            self._eligibility.violations,
            self._eligibility.reach,
            self._requests,
            fleet,
            room,
            self._outages,
        )

    def _verdicts(self, scene: Scene, destination: SuperNodeDestination) -> list[Verdict]:
        gated = oldest_first(scene.idle(scene.book.having("gated")))
        siblings = {key: scene.siblings(key) for key in {pod.key for pod in gated}}
        return plan([self._case(scene, pod, destination) for pod in gated], siblings, destination)

    def _case(self, scene: Scene, pod: Pod, destination: SuperNodeDestination) -> Case:
        wish = self._wish(scene, pod)
        ordinal, unknown = self._ordinal(scene, pod)
        return Case(
            pod,
            wish.replicas,
            wish.allowed,
            wish.inputs,
            self._barred(scene, pod),
            ordinal,
            unknown,
            destination.is_asked_for(pod),
            self._age(pod),
        )

    def _ordinal(self, scene: Scene, pod: Pod) -> tuple[int | None, str]:
        """Of a StatefulSet's pod, counted from the first; and what is still looked up."""
        number = ordinal_of(pod) if stateful_set_of(pod) else None
        if number is None:
            return None, ""
        first = scene.first_ordinal(pod)
        if first is None and self._age(pod) < PATIENCE:
            return None, "its StatefulSet is looked up"
        return number - (first or 0), ""

    def _age(self, pod: Pod) -> float:
        created = pod.metadata.creation_timestamp
        return (self._now() - created).total_seconds() if created else math.inf

    def _barred(self, scene: Scene, pod: Pod) -> str:
        if not scene.settings.home_failover.enabled:
            return ""
        if not scene.nodes.any_ready:
            return "no super node is ready"
        return "super nodes did not take its like" if self._refusals.known(pod.key) else ""

    def _intent(self, verdict: Verdict, scene: Scene) -> Intent | None:
        pod, why = verdict.pod, verdict.why
        if verdict.exception:
            usual = verdict.exception == "LocalReplicasRestored"
            self._reporter.once(pod, verdict.exception, why, "Normal" if usual else "Warning")
        match verdict.place:
            case Place.WAIT | Place.LOOK:
                return None
            case Place.SUPER:
                patch = to_super_node(pod, why, with_cost=_has_cost(pod, scene))
                return Intent(Do.SEND, pod, why, patch)
            case Place.ANY:
                return Intent(Do.LET, pod, why, to_any_node(pod, why))
            case place:
                pin = place is Place.LOCAL and scene.wish(pod).pin
                return Intent(Do.KEEP, pod, why, to_home(pod, why, pin=pin))

    def _bursts(
        self, scene: Scene, unbound: Iterable[Pod], destination: SuperNodeDestination
    ) -> Iterator[Intent]:
        stuck = oldest_first(scene.idle(pod for pod in unbound if burst_plan.is_stuck(pod)))
        wishes = [(pod, self._wish(scene, pod)) for pod in stuck if scene.nodes.names]
        cases = [Stuck(pod, wish.allowed, wish.inputs, is_kept_off(pod)) for pod, wish in wishes]
        for each in burst_plan.plan(cases, destination):
            match each:
                case Let(pod, why):
                    yield Intent(Do.BURST, pod, why, burst(pod, why, with_cost=_has_cost(pod, scene)))
                case Refused(pod, reason, why):
                    self._reporter.once(pod, reason, why)

    def _given_up(self, scene: Scene, unbound: Iterable[Pod]) -> Iterator[Intent]:
        settings = scene.settings.home_failover
        for pod in scene.idle(failover.stranded(unbound, settings, self._now())):
            if pod.metadata.controller is None:
                self._reporter.once(pod, "NotTakenBySuperNode", failover.NOBODY_REPLACES_IT)
                continue
            self._refusals.note(pod.key, settings.home_after)
            why = f"Super nodes did not take it for {settings.home_after:g} s: the pod that replaces it stays home"
            yield Intent(Do.GIVE_UP, pod, why)

    def _tell_problems(self, scene: Scene, uids: Iterable[str]) -> None:
        """Also of pods that were let through by admission for them, and may have been bound at once."""
        for uid in uids:
            pod = scene.book.get(uid)
            if (
                pod
                and pod.active
                and not pod.metadata.annotations.keys().isdisjoint((LOCAL_REPLICAS, SWITCH))
            ):
                self._wish(scene, pod)

    def _costs(self, scene: Scene, changed: set[str]) -> Iterator[Intent]:
        by = (scene.nodes.names, scene.settings.scale_in_order)
        due = self._costs_due | (
            changed if by == self._costs_by else {pod.metadata.uid for pod in scene.book.all()}
        )
        self._costs_by, self._costs_due = by, set()
        for uid in due if scene.settings.scale_in_order else ():
            pod = scene.book.get(uid)
            if pod is None or not (change := cost_to_change(pod, scene.nodes.names)):
                continue
            if scene.is_idle(uid):
                yield Intent(Do.COST, pod, patch=cost_change(pod, change))
            else:
                self._costs_due.add(uid)

    def _wish(self, scene: Scene, pod: Pod) -> Wish:
        wish = scene.wish(pod)
        for reason, message in wish.problems:
            self._reporter.once(pod, reason, message)
        return wish

    def _tidy(self, scene: Scene, unbound: Iterable[Pod]) -> None:
        """Forget what was known of pods that wait no more, or are no more, and count those that are there."""
        gated = scene.book.having("gated")
        waiting = {pod.metadata.uid for pod in (*gated, *unbound)}
        self._eligibility.keep_only(waiting)
        self._requests.keep_only(waiting)
        self._reporter.forget(lambda uid: scene.book.get(uid) is None)
        self._writer.forget(lambda uid: scene.book.get(uid) is None)
        self._reporter.count(
            gated=len(gated),
            pending=sum(pod.stuck_since is not None for pod in unbound),
            local=len(scene.book.having("placed local")),
            super=len(scene.sent()),
        )


def _has_cost(pod: Pod, scene: Scene) -> bool:
    return scene.settings.scale_in_order and pod.metadata.controller is not None
