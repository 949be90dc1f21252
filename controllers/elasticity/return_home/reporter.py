"""Events, metrics and logs of returns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import structlog
from prometheus_client import Counter, Gauge

from controllers.elasticity.pods import Pod
from controllers.elasticity.return_home.failures import Failed
from controllers.elasticity.return_home.planner import Outcome, Return
from kube.errors import KubeError
from kube.event_recorder import EventRecorder, Regarding, Type
from kube.types import rfc3339

RETURNING = Gauge(
    "drawbridge_elasticity_returning",
    "Workloads with pods on super nodes that may return, and those with an eviction whose replacement is not ready.",
    ["state"],
)
RETURNS = Counter(
    "drawbridge_elasticity_returns",
    "Evictions for the return to local nodes, by what became of them.",
    ["outcome"],
)

log = structlog.stdlib.get_logger(__name__)


class ReturnReporter:
    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._why: dict[str, str] = {}
        self._refused: set[str] = set()
        self._blocked: dict[str, str] = {}
        for outcome in (*Outcome, "refused"):
            RETURNS.labels(str(outcome))  # an alert sees no first one that comes from nothing

    def count(self, waiting: int, in_progress: int) -> None:
        RETURNING.labels("waiting").set(waiting)
        RETURNING.labels("in_progress").set(in_progress)

    def waits(self, reasons: Mapping[str, str]) -> None:
        """Why each key has no pod evicted now: logged when that changes."""
        for key, why in reasons.items():
            if self._why.get(key) != why:
                log.info("return waits", key=key, why=why)
        self._why = dict(reasons)

    def evicted(self, pod: Pod, node: str, after: float) -> None:
        log.info("pod evicted", namespace=pod.metadata.namespace, name=pod.metadata.name, node=pod.node_name)
        why = (
            f"Evicted from {pod.node_name}: local nodes have had room for {after:g} s, for example {node};"
            " the scheduler decides where its replacement runs"
        )
        self._event(pod, "ReturnsHome", why, "Normal")

    def refused(self, pod: Pod, error: KubeError) -> None:
        """Once for each pod."""
        at = pod.metadata
        RETURNS.labels("refused").inc()
        log.warning("eviction refused", namespace=at.namespace, name=at.name, error=str(error))
        if at.uid not in self._refused:
            self._refused.add(at.uid)
            self._event(pod, "ReturnRefused", f"Stays on its super node for now: {error}", "Normal")

    def blocked(self, pod: Pod, why: str) -> None:
        """Once for each pod and reason: what keeps it there does not pass by itself."""
        if self._blocked.get(pod.metadata.uid) != why:
            self._blocked[pod.metadata.uid] = why
            self._event(pod, "ReturnBlocked", f"Stays on its super node: {why}", "Normal")

    def ended(self, begun: Return, ended: Outcome, members: Sequence[Pod], failed: Failed | None) -> None:
        RETURNS.labels(ended.value).inc()
        pod = begun.request.pod
        log.info(
            "return ended", namespace=pod.metadata.namespace, name=pod.metadata.name, outcome=ended.value
        )
        if failed is None:
            return
        reason, what = "ReturnStalled", "is not ready"
        new = begun.replacements(members)
        if ended is Outcome.SUPER:
            reason, what = "ReturnFailed", "came to a super node again"
        else:
            new = [each for each in new if not each.ready] or [pod]
        for replacement in new:
            message = f"The replacement of {pod.metadata.name} {what}: {_consequence(failed)}"
            self._event(replacement, reason, message, "Warning")

    def keep_only(self, uids: Collection[str]) -> None:
        self._refused &= set(uids)
        self._blocked = {uid: why for uid, why in self._blocked.items() if uid in uids}

    def _event(self, pod: Pod, reason: str, message: str, type: Type) -> None:  # noqa: A002
        at = pod.metadata
        self._recorder.event(Regarding.pod(at.namespace, at.name, at.uid), reason, message, type=type)


def _consequence(failed: Failed) -> str:
    if failed.is_final:
        return (
            f"{failed.times} failures in a row, so the pods of this revision stay on super nodes;"
            " `drawbridge elasticity return` evicts them"
        )
    return f"the next return of its workload is at {rfc3339(failed.until)} at the earliest"
