"""Events for what is out of the ordinary, once for each pod, and metrics for all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

import structlog
from prometheus_client import Counter, Gauge, Histogram

from api.elasticity import REASON, WAITS
from controllers.elasticity.patches import Action, Kind
from controllers.elasticity.pods import Observed, Pod
from controllers.elasticity.room import waits
from kube.errors import ApiError
from kube.event_recorder import EventRecorder, Regarding, Type
from kube.resources import PODS
from settings.elasticity import Budget

PODS_BY_STATE = Gauge(
    "drawbridge_elasticity_pods",
    "Pods that wait for their placement, that the scheduler finds no room for, that wait because a limit of super"
    " nodes is reached, that were placed on local nodes, that are on super nodes or on their way there,"
    " and that a super node has not started.",
    ["state"],
)
PLACED = Counter("drawbridge_elasticity_placed", "Pods whose gate was removed, by placement.", ["placement"])
BURSTS = Counter(
    "drawbridge_elasticity_bursts", "Pods allowed on super nodes because no local node had room."
)
GIVEN_UP = Counter(
    "drawbridge_elasticity_given_up", "Pods deleted because super nodes did not take or start them."
)
REFUSED = Counter(
    "drawbridge_elasticity_refused",
    "Pods with an Event that says why they do not go to super nodes.",
    ["reason"],
)
GATE_SECONDS = Histogram(
    "drawbridge_elasticity_gate_seconds",
    "From when the leader first saw a pod to the removal of its gate, of those that waited for no limit.",
    buckets=(0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300),
)

OLDEST_GATE = Gauge(
    "drawbridge_elasticity_oldest_gate_seconds",
    "For how long the leader has known the pod that is gated for longest; 0 when none is.",
)

IN_FORCE = Gauge(
    "drawbridge_elasticity_budget_in_force",
    "Whether a budget with hours holds now.",
    ["budget", "hours"],
)

TIER_PODS = Gauge(
    "drawbridge_elasticity_tier_pods",
    "Pods on super nodes by the tier of their subnet, if there are several.",
    ["tier"],
)

LONG = 15.0
"""Seconds after which a gated pod says by an Event what it waits for."""
PLACEMENTS = {Kind.LOCAL: "local", Kind.SUPER: "super", Kind.ANY: "any"}
LEFT = "there was no leader to place it; now there is one"
TAKING_OVER = "the new leader makes sure that the former one can no longer write"

Labels = tuple[str, ...]

log = structlog.stdlib.get_logger(__name__)


class Reporter:
    """Safe to share between threads as long as one at a time reports on a pod; *seen* are those without a node."""

    def __init__(self, recorder: EventRecorder, now: Callable[[], datetime], seen: Observed) -> None:
        self._recorder, self._now, self._seen = recorder, now, seen
        self._reported: dict[str, set[str]] = {}
        self._waits: dict[str, str] = {}
        self.by_uid = self._reported, self._waits
        self._series: dict[Gauge, frozenset[Labels]] = {}

    def once(self, pod: Pod, reason: str, message: str, type: Type = "Warning") -> None:  # noqa: A002
        """On the pod: each *message*, but of a Warning only the first one with its *reason*."""
        reported = self._reported.setdefault(pod.metadata.uid, set())
        said = reason if type == "Warning" else message
        if said in reported:
            return
        reported.add(said)
        if type == "Warning":
            REFUSED.labels(reason).inc()
        self.event(pod, reason, message, type)

    def wait(self, reasons: Mapping[str, str]) -> None:
        """What gated pods wait for, by uid, as of their last decision."""
        self._waits.update(reasons)

    def report_left(self, gated: Iterable[Pod]) -> None:
        """An Event for those *gated* that a new leader finds, and that have waited for one for long."""
        now = self._now()
        for pod in gated:
            seconds = (now - (pod.metadata.creation_timestamp or now)).total_seconds()
            if seconds >= LONG and pod.metadata.annotations.get(REASON, "").startswith(WAITS):
                self.event(pod, "WaitsForPlacement", f"Gated for {seconds:.0f} s: {LEFT}", "Warning")

    def report_waiting(self, gated: Collection[Pod]) -> None:
        """An Event for those *gated* that this leader has known for long, unless there was one before."""
        ages = self._seen.ages(pod.metadata.uid for pod in gated)
        count_gated(ages)
        for pod in gated:
            uid = pod.metadata.uid
            if ages[uid] >= LONG and not self._reported.get(uid):
                why = self._waits.get(uid, TAKING_OVER)
                self._reported[uid] = {"WaitsForPlacement"}
                self.event(pod, "WaitsForPlacement", f"Gated, waiting for its placement: {why}", "Warning")

    def done(self, action: Action) -> None:
        pod, why = action.pod, action.why
        at = pod.metadata
        log.info("pod written", action=action.kind, **at.about, why=why)
        if action.kind in PLACEMENTS:
            PLACED.labels(PLACEMENTS[action.kind]).inc()
            if not waits(pod):
                GATE_SECONDS.observe(self._seen.age(action.uid))
        elif action.kind is Kind.BURST:
            BURSTS.inc()
            self.event(pod, "SentToSuperNode", f"{why[0].upper()}{why[1:]}", "Normal")
        elif action.kind is Kind.DELETE:
            GIVEN_UP.inc()
            self.event(pod, "NotStartedBySuperNode" if pod.node_name else "AllowedHomeAgain", why, "Warning")

    def refused(self, action: Action, error: ApiError) -> None:
        log.warning("pod write refused", action=action.kind, **action.pod.metadata.about, error=str(error))
        if action.kind is not Kind.COST:
            message = f"The API server refused to {action.kind}: {error}"
            self.event(action.pod, "FailedPlacement", message, "Warning")

    def hold(self, budgets: Iterable[Budget]) -> None:
        """Which of those with hours hold now."""
        timed, now = [budget for budget in budgets if budget.hours], self._now()
        self._show(IN_FORCE, {(str(each), each.times): float(each.holds_at(now)) for each in timed})

    def count_tiers(self, pods: Mapping[int, int]) -> None:
        """*pods* by tier; nothing is shown of a single one."""
        several = pods if len(pods) > 1 else {}
        self._show(TIER_PODS, {(str(tier),): count for tier, count in several.items()})

    def count(self, **states: int) -> None:
        for state, number in states.items():
            PODS_BY_STATE.labels(state).set(number)

    def _show(self, gauge: Gauge, values: Mapping[Labels, float]) -> None:
        """By labels. A series that stays has no gap, which would end an alert."""
        for labels, value in values.items():
            gauge.labels(*labels).set(value)
        for labels in self._series.get(gauge, frozenset()).difference(values):
            gauge.remove(*labels)
        self._series[gauge] = frozenset(values)

    def event(self, pod: Pod, reason: str, message: str, type: Type) -> None:  # noqa: A002
        self._recorder.event(Regarding.of(pod, PODS, "Pod"), reason, message, type=type)


def clear() -> None:
    """The feature is off: what was counted last would stand for as long as this process."""
    for gauge in (PODS_BY_STATE, IN_FORCE, TIER_PODS):
        gauge.clear()


def count_gated(ages: Mapping[str, float]) -> None:
    """Of pods by uid: the seconds for which the leader has known them."""
    OLDEST_GATE.set(max(ages.values(), default=0.0))
    PODS_BY_STATE.labels("gated").set(len(ages))
