"""Decide where the pods of one owner and revision belong, and start the writes that take them there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from controllers.elasticity import planner, tiers
from controllers.elasticity.annotations import Wish, is_readable
from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.fleet import Fleet, SuperNodeDestination
from controllers.elasticity.nodes import Outages
from controllers.elasticity.patches import (
    Action,
    Kind,
    Patch,
    burst,
    cost_change,
    explained,
    to_any_node,
    to_local_nodes,
    to_super_node,
)
from controllers.elasticity.planner import Burst, Case, Place, Refused, Verdict
from controllers.elasticity.pods import Pod, keep_only
from controllers.elasticity.quota import Quota, Room
from controllers.elasticity.reporter import Reporter
from controllers.elasticity.snapshot import Snapshot, Sources
from controllers.elasticity.takeover import Takeover
from controllers.elasticity.writer import Writer

AT_ONCE, SOON, LATER = 0.0, 1.0, 5.0
"""Seconds to the next reconcile: for what the next event of another kind brings, for a state that no event reports,
and for pods that stay undecided."""


class Rejections:
    """Keys whose pods super nodes did not take, for a while; *clock* is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def note(self, key: str, seconds: float) -> None:
        now = self._clock()
        self._until = {held: until for held, until in self._until.items() if until > now} | {
            key: now + seconds
        }

    def includes(self, key: str) -> bool:
        return self._until.get(key, 0.0) > self._clock()


class Decision:
    """*rests* is for how many seconds a pod is not to be written to.

    *stalled*: the rollout goes on when one of the gated pods runs. *events* are to be reported once; *waits* say by uid
    what gated pods wait for; *again* are in seconds.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        destination: SuperNodeDestination,
        rejections: Rejections,
        rests: Callable[[str], float],
        *,
        stalled: bool = False,
    ) -> None:
        self._snapshot, self._destination = snapshot, destination
        self._rejections, self._rests, self._stalled = rejections, rests, stalled
        self.actions: list[Action] = []
        self.events: list[Refused] = []
        self.waits: dict[str, str] = {}
        self.again: list[float] = []

    def make(self) -> None:
        for action in self._snapshot.assumed.values():
            self.waits[action.uid] = "it is decided, and the API server has not accepted it yet"
        if gated := self._at_work(self._snapshot.gated):
            cases, siblings = map(self._case, gated), self._snapshot.siblings
            for verdict in planner.plan(cases, siblings, self._destination, stalled=self._stalled):
                self._take(verdict)
        if stuck := self._at_work(self._snapshot.stuck):
            self.again.append(LATER)
            self._burst(filter(planner.may_burst, stuck))
            self._give_up(stuck)
        self._finish_bound()

    def _at_work(self, pods: Iterable[Pod]) -> list[Pod]:
        """Without those that rest."""
        pauses = [(pod, self._rests(pod.metadata.uid)) for pod in pods]
        self.again += [pause for _, pause in pauses if pause]
        return [pod for pod, pause in pauses if not pause]

    def _case(self, pod: Pod) -> Case:
        return Case(
            pod,
            self._wish(pod),
            self._barred(pod),
            self._snapshot.ordinal(pod),
            self._destination.is_asked_for(pod),
            self._snapshot.age(pod),
        )

    def _barred(self, pod: Pod) -> str:
        if not self._snapshot.settings.home_failover.enabled:
            return ""
        if not self._snapshot.nodes.any_ready:
            return "no super node is ready"
        return "super nodes did not take its like" if self._rejections.includes(pod.key) else ""

    def _take(self, verdict: Verdict) -> None:
        pod, why = verdict.pod, verdict.why
        if verdict.exception:
            usual = verdict.exception == "LocalReplicasRestored"
            self.events.append(Refused(pod, verdict.exception, why, "Normal" if usual else "Warning"))
        match verdict.place:
            case Place.WAIT | Place.LOOK:
                self.waits[pod.metadata.uid] = why
                self.again.append(self._pause(verdict))
                self._explain(pod, verdict.exception, why)
            case Place.SUPER:
                self._send(pod, why)
            case Place.ANY:
                self._act(Kind.ANY, pod, why, to_any_node(pod, why, self._destination.gpus(pod)))
            case place:
                pin = place is Place.LOCAL and self._snapshot.wish(pod).pin
                patch = to_local_nodes(pod, why, pin=pin, gpus=self._destination.gpus(pod))
                self._act(Kind.LOCAL, pod, why, patch)

    def _send(self, pod: Pod, why: str) -> None:
        why = f"{why}{tiers.said(self._destination.first_tier(pod, bound=True))}"
        with_cost, preferred = self._has_cost(pod), self._snapshot.settings.tiers
        gpus = self._destination.gpus(pod)
        patch = to_super_node(pod, why, with_cost=with_cost, tiers=preferred, gpus=gpus)
        self._act(Kind.SUPER, pod, why, patch)

    def _pause(self, verdict: Verdict) -> float:
        if verdict.place is Place.WAIT:
            return LATER
        return AT_ONCE if verdict.case.unknown else SOON

    def _burst(self, stuck: Iterable[Pod]) -> None:
        if not self._snapshot.nodes.names:
            return
        cases = [Case(pod, self._wish(pod)) for pod in stuck]
        for each in planner.plan_bursts(cases, self._destination):
            if isinstance(each, Burst):
                self._allow(each.pod, each.why)
            else:
                self.events.append(each)
                self._explain(each.pod, each.reason, each.why)

    def _allow(self, pod: Pod, why: str) -> None:
        first = self._destination.first_tier(pod, bound=False)
        why, also = f"{why}{tiers.said(first)}", tiers.tolerations(first, self._snapshot.settings.tiers)
        with_cost, gpus = self._has_cost(pod), self._destination.gpus(pod)
        self._act(Kind.BURST, pod, why, burst(pod, why, with_cost=with_cost, also=also, gpus=gpus))

    def _explain(self, pod: Pod, reason: str, why: str) -> None:
        """What it waits for is on the pod, too, as long as a limit is reached: that may be for hours."""
        if reason == planner.CAPPED and (patch := explained(pod, why)):
            self._act(Kind.WAIT, pod, why, patch)

    def _give_up(self, stuck: Iterable[Pod]) -> None:
        settings = self._snapshot.settings.home_failover
        for pod in planner.stranded(stuck, settings, self._snapshot.now):
            if pod.metadata.controller is None:
                self.events.append(Refused(pod, "NotTakenBySuperNode", planner.NO_OWNER))
                continue
            self._rejections.note(pod.key, settings.home_after)
            why = f"Super nodes did not take it for {settings.home_after:g} s: its replacement stays local"
            self._act(Kind.DELETE, pod, why)

    def _finish_bound(self) -> None:
        """Deletion costs, and what is wrong with pods that were never gated because of it."""
        in_order, names = self._snapshot.settings.scale_in_order, self._snapshot.nodes.names
        for pod in self._snapshot.pods:
            if not pod.gated and not is_readable(pod, self._snapshot.settings):
                self._wish(pod)
            if not in_order or pod.metadata.uid in self._snapshot.assumed:
                continue
            if (patch := cost_change(pod, names)) and self._at_work((pod,)):
                self._act(Kind.COST, pod, patch=patch)

    def _act(self, kind: Kind, pod: Pod, why: str = "", patch: Patch | None = None) -> None:
        self.actions.append(Action(kind, pod, why, patch))

    def _wish(self, pod: Pod) -> Wish:
        wish = self._snapshot.wish(pod)
        self.events += (Refused(pod, reason, message) for reason, message in wish.problems)
        return wish

    def _has_cost(self, pod: Pod) -> bool:
        return self._snapshot.settings.scale_in_order and pod.metadata.controller is not None


@dataclass(frozen=True)
class SuperNodeState:
    """What all decisions share about super nodes."""

    quota: Quota
    eligibility: Eligibility
    outages: Outages
    rejections: Rejections
    standstills: Standstills


class Reconciler:
    """*now* is the time of day."""

    def __init__(
        self,
        sources: Sources,
        takeover: Takeover,
        writer: Writer,
        state: SuperNodeState,
        reporter: Reporter,
        now: Callable[[], datetime],
    ) -> None:
        self._sources, self._takeover, self._writer = sources, takeover, writer
        self._state, self._reporter, self._now = state, reporter, now

    def reconcile(self, key: str) -> float | None:
        if not self._takeover.is_over(key):
            return None  # the takeover queues the key
        snapshot = self._sources.snapshot(key, self._writer.assumptions.of(key), self._now())
        settings = snapshot.settings
        with self._state.quota.acquire(key, settings.max_super_pods) as room:
            destination = self._destination(snapshot, room)
            decision = Decision(
                snapshot,
                destination,
                self._state.rejections,
                self._writer.rests,
                stalled=self._is_stalled(key, snapshot),
            )
            decision.make()
            self._writer.start(decision.actions)
        for each in decision.events:
            self._reporter.once(each.pod, each.reason, each.why, each.type)
        self._reporter.wait(decision.waits)
        looked_up = [self._state.eligibility.look_up(pod) for pod in destination.to_look_up]
        borders = filter(None, [room.opens_in])
        return min((*decision.again, *looked_up, *borders), default=None)

    def _is_stalled(self, key: str, snapshot: Snapshot) -> bool:
        """Only a limit holds up a rollout."""
        if not snapshot.settings.max_super_pods.is_limited or not (gated := snapshot.gated):
            return False
        pods = self._sources.pods.having(f"workload {gated[0].workload}")
        is_still = stands_still(pods, key, snapshot.assumed, snapshot.now)
        return self._state.standstills.observe(key, is_still=is_still) >= PATIENCE

    def _destination(self, snapshot: Snapshot, room: Room) -> SuperNodeDestination:
        having, nodes = self._sources.pods.having, snapshot.nodes
        self._state.outages.observe(nodes.super)
        assumed, gpus = self._writer.assumptions.to_super_nodes, snapshot.settings.gpus
        fleet = Fleet(nodes, having, assumed, gpus=gpus)
        return SuperNodeDestination(self._state.eligibility, fleet, room, self._state.outages)


PATIENCE = 60.0
"""Seconds for which a rollout stands still before one of its pods is local instead; also those by which a pod may
outlive its grace period before it no longer counts as leaving."""


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


class Standstills:
    """For how long the rollout of each key has stood still, as this leader saw it; *clock* is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def observe(self, key: str, *, is_still: bool) -> float:
        """The seconds until now."""
        if not is_still:
            self._since.pop(key, None)
            return 0.0
        return self._clock() - self._since.setdefault(key, self._clock())

    def keep_only(self, keys: Callable[[], Collection[str]]) -> None:
        keep_only(self._since, keys)


def _is_leaving(pod: Pod, now: datetime) -> bool:
    ends = pod.metadata.deletion_timestamp
    return ends is not None and now < ends + timedelta(seconds=PATIENCE)
