"""What is told of pods: Events for what is out of the ordinary, once for each, and metrics for all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

import structlog
from prometheus_client import Counter, Gauge, Histogram

from controllers.elasticity.pending_writes import Do, Intent
from controllers.elasticity.pods import Pod
from kube.errors import ApiError
from kube.event_correlator import Type
from kube.event_recorder import EventRecorder, Regarding

PODS_BY_STATE = Gauge(
    "drawbridge_elasticity_pods",
    "Pods that wait for their placement, that the scheduler finds no room for, that were placed at home, and that"
    " are on super nodes or on their way there.",
    ["state"],
)
PLACED = Counter("drawbridge_elasticity_placed", "Pods whose gate was removed, by placement.", ["placement"])
BURSTS = Counter("drawbridge_elasticity_bursts", "Pods let to super nodes for want of room at home.")
GIVEN_UP = Counter("drawbridge_elasticity_given_up", "Pods deleted because super nodes did not take them.")
REFUSED = Counter(
    "drawbridge_elasticity_refused", "Pods that were told why they do not go to super nodes.", ["reason"]
)
GATE_SECONDS = Histogram(
    "drawbridge_elasticity_gate_seconds",
    "From the creation of a pod to the removal of its gate.",
    buckets=(0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300),
)

OLDEST_GATE = Gauge(
    "drawbridge_elasticity_oldest_gate_seconds", "Age of the oldest pod that is gated; 0 when none is."
)

LONG = 15.0
"""Seconds after which a gated pod says by an Event what it waits for."""
PLACEMENTS = {Do.KEEP: "local", Do.SEND: "super", Do.LET: "any"}

log = structlog.stdlib.get_logger(__name__)


class Reporter:
    def __init__(self, recorder: EventRecorder, now: Callable[[], datetime]) -> None:
        self._recorder, self._now = recorder, now
        self._told: dict[str, set[str]] = {}
        self._gated_since: dict[str, datetime] = {}

    def once(self, pod: Pod, reason: str, message: str, type: Type = "Warning") -> None:  # noqa: A002
        """On the pod, unless this was told of it before, with other words maybe."""
        told = self._told.setdefault(pod.metadata.uid, set())
        if reason in told:
            return
        told.add(reason)
        if type == "Warning":
            REFUSED.labels(reason).inc()
        self._event(pod, reason, message, type)

    def waiting(self, gated: Collection[Pod], why: Mapping[str, str], otherwise: str) -> None:
        """Those *gated* for long say for what, unless they have been told something before; *why* is by uid."""
        now = self._now()
        count_gated(gated, now)
        uids = {pod.metadata.uid for pod in gated}
        self._gated_since = {uid: self._gated_since.get(uid, now) for uid in uids}
        for pod in gated:
            uid = pod.metadata.uid
            is_long = (now - self._gated_since[uid]).total_seconds() >= LONG
            if is_long and not self._told.get(uid):
                self._told[uid] = {"WaitsForPlacement"}
                message = f"It is gated, and waits for its placement: {why.get(uid, otherwise)}"
                self._event(pod, "WaitsForPlacement", message, "Warning")

    def forget(self, gone: Callable[[str], bool]) -> None:
        """What was told of pods that are no more."""
        for uid in [uid for uid in self._told if gone(uid)]:
            del self._told[uid]

    def done(self, intent: Intent) -> None:
        log.info("done", do=intent.do, pod=_name(intent.pod), uid=intent.uid, why=intent.why)
        if intent.do in PLACEMENTS:
            PLACED.labels(PLACEMENTS[intent.do]).inc()
            if created := intent.pod.metadata.creation_timestamp:
                GATE_SECONDS.observe((self._now() - created).total_seconds())
        elif intent.do is Do.BURST:
            BURSTS.inc()
            self._event(intent.pod, "SentToSuperNode", f"{intent.why[0].upper()}{intent.why[1:]}", "Normal")
        elif intent.do is Do.GIVE_UP:
            GIVEN_UP.inc()
            self._event(intent.pod, "AllowedHomeAgain", intent.why, "Warning")

    def refused(self, intent: Intent, error: ApiError) -> None:
        log.warning("refused", do=intent.do, pod=_name(intent.pod), uid=intent.uid, error=str(error))
        if intent.do is not Do.COST:
            self._event(
                intent.pod, "FailedPlacement", f"The API server refused to {intent.do}: {error}", "Warning"
            )

    def count(self, **states: int) -> None:
        for state, number in states.items():
            PODS_BY_STATE.labels(state).set(number)

    def _event(self, pod: Pod, reason: str, message: str, type: Type) -> None:  # noqa: A002
        at = pod.metadata
        self._recorder.event(Regarding.pod(at.namespace, at.name, at.uid), reason, message, type=type)


def count_gated(gated: Collection[Pod], now: datetime) -> None:
    born = [at for pod in gated if (at := pod.metadata.creation_timestamp)]
    OLDEST_GATE.set(max(0.0, (now - min(born)).total_seconds()) if born else 0.0)
    PODS_BY_STATE.labels("gated").set(len(gated))


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
