"""Reconcile one IngressDaemonSet at a time: read a snapshot, plan, write, report.

The queue has one worker, so that budgets are exact: every earlier write counts, by its answer or as uncertain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec
import structlog
from prometheus_client import Histogram

from api.ingress_daemonset.types import IngressDaemonSet
from controllers.clock import Clock
from controllers.ingress_daemonset.actions import Seen, Target
from controllers.ingress_daemonset.canary_metric import Query
from controllers.ingress_daemonset.confirmation import Readings
from controllers.ingress_daemonset.drift import Alteration, Altered, Managed, alteration
from controllers.ingress_daemonset.health_check_reader import HealthCheckReader, checkers_of
from controllers.ingress_daemonset.metric_reader import MetricReader
from controllers.ingress_daemonset.node_rollout import NodeRollout
from controllers.ingress_daemonset.object_cache import LABELS, ObjectCache
from controllers.ingress_daemonset.overview import FIELDS
from controllers.ingress_daemonset.planner import Plan, plan
from controllers.ingress_daemonset.reporter import Reporter
from controllers.ingress_daemonset.rollback import resolved
from controllers.ingress_daemonset.snapshot import Snapshot, first_seen
from controllers.ingress_daemonset.suspension import suspended
from controllers.ingress_daemonset.writer import Writer
from kube.errors import Conflict, KubeError
from kube.types import key_of
from settings import IngressDaemonSetSettings

PLAN_SECONDS = Histogram(
    "drawbridge_ingress_daemonset_plan_seconds",
    "Duration of one plan for one IngressDaemonSet.",
    buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)

COMPANY = 0.02
"""Seconds between two reconciles at least, in which changes that come together gather."""
LOAD = 2.0
"""A reconcile is followed by a pause of so many times the length of its plan, which leaves the processor to others."""
STATUS_PERIOD = 1.0
"""Seconds between two writes of a status at least: each is sent to all watches."""
GUARDED = {"canary", "waves", "rollback", "failures"}
"""Fields of a status that decide about nodes: those of an old version, or of a former leader, are not merged in."""
UNLABELLED_PERIOD = 15.0
"""Seconds after which an object that no informer follows is read again."""

Settings = Callable[[], IngressDaemonSetSettings]

log = structlog.stdlib.get_logger(__name__)


@dataclass
class Memory:
    """Of an IngressDaemonSet: what makes reconciles faster, or less frequent, and when marks were *seen* first."""

    took: float = 0.0
    status_at: float = -STATUS_PERIOD
    rollouts: Sequence[NodeRollout] = ()
    unanswered: Sequence[str] = ()
    query: Query | None = None
    seen: Seen = field(default_factory=dict)
    pruned: frozenset[str] = frozenset()
    """Fields of the status that the CRD does not have, so that the API server drops them."""


@dataclass(frozen=True)
class Readers:
    """What answers later, and is not waited for."""

    checkers: HealthCheckReader
    metrics: MetricReader


class Reconciler:
    def __init__(
        self,
        cache: ObjectCache,
        writer: Writer,
        readers: Readers,
        reporter: Reporter,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._cache, self._writer, self._readers, self._reporter = cache, writer, readers, reporter
        self._settings, self._clock = settings, clock
        self._memory: dict[str, Memory] = {}

    def pace(self, key: str) -> float:
        """Seconds from a change of *key* to its reconcile."""
        memory = self._memory.get(key)
        return max(COMPANY, LOAD * memory.took if memory else 0.0)

    def reconcile(self, key: str) -> float | None:
        """Seconds until the next reconcile is due; None for not before a change. KubeError, LeadershipLost."""
        self._writer.settle()
        resource = self._cache.get(Target("IngressDaemonSet", *key.split("/")))
        if resource is None:
            self._forget(key)
            return None
        memory = self._memory.setdefault(key, Memory())
        unlabelled = self._read_unlabelled()
        checkers = checkers_of(memory.rollouts, memory.unanswered)
        readings, next_reading = self._readers.checkers.readings(checkers)
        asked = memory.query
        measured, next_measurement = self._readers.metrics.measured(key, asked)
        snapshot = replace(self._snapshot(resource, readings, memory), measured=measured)
        planned = self._plan(snapshot, memory)
        learned = self._writer.run(resource.metadata, planned.steps)
        self._reporter.altered(resource.metadata, planned.altered, lambda each: self._explain(resource, each))
        dues = (
            self.pace(key) if learned else None,
            unlabelled,
            next_reading,
            next_measurement,
            self.pace(key) if planned.query not in (asked, None) else None,
            self._writer.retries.retry_after(key, {each.target for each in planned.actions}),
            self._report(resource, planned, memory),
            self._until(planned.requeue_at),
        )
        soonest = min((each for each in dues if each is not None), default=None)
        return None if soonest is None else max(soonest, self.pace(key))

    def _forget(self, key: str) -> None:
        self._memory.pop(key, None)
        self._reporter.forget(key)
        self._readers.metrics.forget(key)
        self._writer.retries.forget(key)

    def _snapshot(self, resource: IngressDaemonSet, readings: Readings, memory: Memory) -> Snapshot:
        namespace, cache = resource.metadata.namespace, self._cache
        children = {kind: cache.in_namespace(kind, namespace) for kind in LABELS}
        nodes, now = cache.list("Node"), self._clock.now()
        memory.seen = first_seen(memory.seen, resource, nodes, children["Deployment"], now)
        writes = self._writer.retries.writes(namespace, memory.seen)
        resource, rollback = resolved(resource, cache.revisions(namespace))
        if not self._settings().enabled:
            resource = suspended(resource)  # this process may be the last one that attaches nodes
        backends = cache.backends(resource, [each.name for each in nodes]) if uses_weights(resource) else {}
        return Snapshot(resource, nodes, children, now, writes, readings, rollback, backends=backends)

    def _plan(self, snapshot: Snapshot, memory: Memory) -> Plan:
        began = self._clock.monotonic()
        planned = plan(snapshot, self._settings().health_checker, memory.rollouts)
        memory.took, memory.rollouts = self._clock.monotonic() - began, planned.rollouts
        memory.unanswered, memory.query = planned.unanswered, planned.query
        PLAN_SECONDS.observe(memory.took)
        return planned

    def _explain(self, resource: IngressDaemonSet, each: Altered) -> Alteration | None:
        """From its managed fields, which are read only for this: they are most of an object. None on failure."""
        target = Target(each.kind, resource.metadata.namespace, each.name)
        try:
            return alteration(self._cache.fetch(target, Managed))
        except (KubeError, msgspec.MsgspecError) as error:
            log.warning("managed fields not read", kind=each.kind, name=each.name, error=str(error))
            return None

    def _read_unlabelled(self) -> float | None:
        """Read objects that no informer follows again; seconds until the next time."""
        now = self._clock.monotonic()
        dues = {target: at + UNLABELLED_PERIOD - now for target, (_, at) in self._cache.unlabelled().items()}
        for target in [each for each, due in dues.items() if due <= 0]:
            try:
                self._cache.read(target)
            except KubeError as error:
                log.warning("object not read", kind=target.kind, name=target.name, error=str(error))
        return max(COMPANY, min(dues.values())) if dues else None

    def _report(self, resource: IngressDaemonSet, planned: Plan, memory: Memory) -> float | None:
        """Write the status if it changed, but not too often; seconds until there is more to report."""
        if planned.status is None:
            return None
        reminder = self._settings().detachment_reminder
        due = self._reporter.remind(resource.metadata, planned.unconfirmed, reminder, self._clock.now())
        self._reporter.undrained(resource.metadata, planned.undrained)
        status = {name: part for name, part in planned.status.items() if name not in memory.pruned}
        if status != resource.reported:
            if (left := memory.status_at + STATUS_PERIOD - self._clock.monotonic()) > 0:
                return left
            patch = changes(resource.reported, status)
            try:
                guarded = not GUARDED.isdisjoint(patch)
                stored = self._writer.write_status(resource.metadata, patch, guarded=guarded)
            except Conflict:
                return self.pace(key_of(resource.metadata))
            memory.status_at = self._clock.monotonic()
            memory.pruned |= _pruned(resource, status, stored)
            self._reporter.report(resource, status)
            if guarded:
                # What decides about nodes counts from now on, and the watch does not bring back our own write.
                due = self.pace(key_of(resource.metadata))
        self._reporter.measure(resource, planned)
        return due

    def _until(self, moment: datetime | None) -> float | None:
        return None if moment is None else max(0.0, (moment - self._clock.now()).total_seconds())


def uses_weights(resource: IngressDaemonSet) -> bool:
    return resource.spec.update_strategy.rolling_update.weights is not None


def changes(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The merge patch that replaces *old* with *new*: what is gone is null."""
    patch: dict[str, Any] = dict.fromkeys(old.keys() - new.keys())
    for name, part in new.items():
        before = old.get(name)
        patch[name] = changes(before, part) if isinstance(part, dict) and isinstance(before, dict) else part
    return patch


def _pruned(resource: IngressDaemonSet, sent: dict[str, Any], stored: dict[str, Any]) -> frozenset[str]:
    pruned = frozenset(name for name in FIELDS if name in sent and name not in stored)
    if pruned:
        log.warning("CRD is of an earlier version", name=key_of(resource.metadata), missing=sorted(pruned))
    return pruned
