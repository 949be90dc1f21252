"""Read how checks of the egress have ended, and delete the pods that are not awaited."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

import structlog
from prometheus_client import Counter, Gauge

from controllers.anycast_ip.egress import judged
from controllers.anycast_ip.egress_pod import ProbePod
from controllers.anycast_ip.sources import Sources
from kube.errors import KubeError
from settings.anycast_ip import EgressCheck

PERIOD, REST = 1.0, 300.0
"""Seconds from one look at the pods to the next, while a check runs, and while none does."""
DELETIONS = 50
"""Pods that are deleted in one look."""

CHECKS = Counter(
    "drawbridge_anycast_ip_egress_checks", "Checks of the egress of nodes, by result.", ["result"]
)
for _result in ("passed", "another address", "no answer", "no result"):
    CHECKS.labels(_result)
FAILING = Gauge(
    "drawbridge_anycast_ip_egress_failing",
    "Nodes that stay closed because the last check of their egress failed.",
)

log = structlog.stdlib.get_logger(__name__)


class EgressWatch:
    """*enqueue* adds a uid to the work queue."""

    def __init__(self, sources: Sources, enqueue: Callable[[str], None]) -> None:
        self._checks, self._pods = sources.memory.egress, sources.nodes.probes
        self._settings, self._enqueue = sources.settings, enqueue
        self._clock = sources.memory.clocks.monotonic
        self._looked_at = -math.inf

    def turn(self) -> None:
        """What is due. With the check off, there is no permission to read pods."""
        FAILING.set(self._checks.failing())
        settings, now = self._settings().egress_check, self._clock()
        period = PERIOD if self._checks.awaited() else REST
        if not settings.url or now - self._looked_at < period:
            return
        self._looked_at = now
        try:
            self._look(settings, now)
        except KubeError as error:
            log.warning("egress checks not read", error=str(error))

    def _look(self, settings: EgressCheck, now: float) -> None:
        pods = {each.token: each for each in self._pods.list()}
        for uid, check in self._checks.awaited().items():
            outcome = judged(check, pods.get(check.token), now, settings.timeout)
            if outcome and self._checks.decide(uid, check, outcome):
                CHECKS.labels(outcome.result).inc()
                log.info(
                    "egress checked",
                    uid=uid,
                    address=check.of.address,
                    result=outcome.result,
                    error=outcome.text,
                )
                self._enqueue(uid)
        self._sweep(list(pods.values()))

    def _sweep(self, pods: Collection[ProbePod]) -> None:
        """What was listed was created before; so a pod that no check awaits by now is awaited by none."""
        awaited = {check.token for check in self._checks.awaited().values()}
        over = [each for each in pods if each.token not in awaited and not each.metadata.deletion_timestamp]
        for pod in over[:DELETIONS]:
            self._pods.delete(pod)
