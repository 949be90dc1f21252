"""Reconcile one IngressDaemonSet at a time: read a snapshot, plan, write, report.

Informers only enqueue keys. The queue has one worker, so that budgets are exact: every earlier write counts, by its
answer or as uncertain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import msgspec
import structlog
from prometheus_client import Histogram

from api.health_checks import deployment_name
from api.ingress_daemonset import KIND
from api.ingress_daemonset.status import raw_of
from api.ingress_daemonset.template import FollowedNode, may_match
from api.ingress_daemonset.types import IngressDaemonSet
from controllers.controller import CLOCK, Clock, Controller
from controllers.executor import Executor
from controllers.ingress_daemonset.children import Child, Seen, Target
from controllers.ingress_daemonset.detachment import holders_of
from controllers.ingress_daemonset.drift import Alteration, Altered, Managed, alteration, overwrite
from controllers.ingress_daemonset.health_checks import plan_health_checkers
from controllers.ingress_daemonset.object_cache import (
    LABELS,
    RESOURCES,
    LoadBalancerCache,
    ObjectCache,
    informers_of,
)
from controllers.ingress_daemonset.pacing import resolved, suspended
from controllers.ingress_daemonset.planner import Plan, plan
from controllers.ingress_daemonset.readers import (
    PERIOD,
    Reader,
    Readers,
    announcements,
    ask,
    measure,
    questions_of,
    read,
)
from controllers.ingress_daemonset.reporter import Reporter
from controllers.ingress_daemonset.revisions import plan_revisions
from controllers.ingress_daemonset.rollout import Snapshot, first_seen
from controllers.ingress_daemonset.writer import RetryState, Writer
from controllers.manager import Context
from controllers.workqueue import WorkQueue
from kube.client import Client
from kube.errors import Backoff, Conflict, KubeError
from kube.types import key_of
from runtime import time
from settings import IngressDaemonSetSettings, Settings

WRITERS = 16
"""Writes at a time: fast for a thousand new nodes, and the API server has room for others."""
READERS = 8
"""Health checkers read at a time, apart from writes: those of a lost node take until their timeout."""
QUERIES = 2
"""Canaries measured at a time, apart from health checkers: a Prometheus may answer slowly, or not at all."""
LOOK = 5.0
"""Seconds after which it is noticed that the feature was switched off."""
PAUSES = Backoff(base=0.1, cap=30.0)
SERVED_PAUSES = Backoff(base=0.5, cap=15.0)


class NotServed(Exception):
    """The API server does not know IngressDaemonSets."""


def run(context: Context, settings: Callable[[], Settings]) -> None:
    """Work until the context stops, after the CRD is installed."""
    client = context.client
    if not context.wait_for(lambda: require_served(client), SERVED_PAUSES, "IngressDaemonSets", NotServed):
        return
    known = LoadBalancerCache(lambda: settings().ingress_daemonset.clb)
    informers = informers_of(context.informers)
    cache = ObjectCache(client, informers)
    if not context.wait_synced(*informers.values()):
        return
    reporter = Reporter(context.recorder)

    def ours() -> IngressDaemonSetSettings:
        return settings().ingress_daemonset

    # All work that is submitted has ended afterwards.
    with (
        Executor("ingress-daemonset", WRITERS) as submit,
        Executor("ingress-daemonset", READERS) as submit_read,
        Executor("ingress-daemonset", QUERIES) as submit_query,
    ):
        writer = Writer(context, cache, RetryState(CLOCK), reporter, submit)
        measuring = partial(measure, lambda query: ask(ours().prometheus, query), CLOCK)
        readers = Readers(
            Reader(submit_read, context.stop, read, lambda _: PERIOD),
            Reader(submit_read, context.stop, partial(announcements, client), lambda _: PERIOD),
            Reader(submit_query, context.stop, measuring, lambda query: query.interval),
            known.of,
        )
        reconciler = Reconciler(cache, writer, readers, reporter, ours, CLOCK)
        main = Controller("ingress_daemonset", reconciler.reconcile, rate=PAUSES)
        enqueue_changes(cache, main.queue, reconciler.pace)
        controllers = [main]
        queue_all: list[Callable[[float], None]] = [partial(enqueue_all, cache, main.queue)]
        if settings().ingress_daemonset.clb.enabled:
            # Only then the cloud's libraries are loaded.
            weights = import_module("controllers.ingress_daemonset.weights")
            at_load_balancers = weights.reconciler_of(context, cache, known, settings, main.queue.add)
            controllers.append(at_load_balancers.controller)
            queue_all.append(lambda _: at_load_balancers.enqueue_all())
        resync = Resync(ours, queue_all)
        context.run(*controllers, Controller("ingress_daemonset_resync", resync.reconcile, first=["all"]))


class Resync:
    """Have all looked at, after the period or because the feature was switched."""

    def __init__(
        self,
        settings: Callable[[], IngressDaemonSetSettings],
        queue_all: Sequence[Callable[[float], None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._queue_all, self._clock = settings, queue_all, clock
        self._at, self._enabled = clock(), settings().enabled

    def reconcile(self, _key: str) -> float:
        """KubeError."""
        settings, now = self._settings(), self._clock()
        is_switched = settings.enabled != self._enabled
        if is_switched or now - self._at >= settings.resync_period:
            for queue in self._queue_all:
                queue(0.0 if is_switched else settings.resync_period / 2)
            self._at, self._enabled = now, settings.enabled
        return min(LOOK, settings.resync_period)


def enqueue_all(cache: ObjectCache, queue: WorkQueue, within: float = 0.0) -> None:
    """One after the other within some seconds: what changes meanwhile does not wait for all."""
    known = cache.list("IngressDaemonSet")
    for number, resource in enumerate(known):
        queue.add_after(key_of(resource.metadata), within * number / len(known))


def require_served(client: Client) -> bool:
    """True, or NotServed."""
    if not client.serves(RESOURCES["IngressDaemonSet"]):
        raise NotServed("the API server does not know the kind; its CRD is part of the chart")
    return True


def enqueue_changes(cache: ObjectCache, queue: WorkQueue, pace: Callable[[str], float]) -> None:
    """What is known already is queued once, not for each node."""
    has_begun = False

    def enqueue(key: str) -> None:
        queue.add_after(key, pace(key))

    def on_node(old: FollowedNode | None, new: FollowedNode | None) -> None:
        if has_begun and matters(old, new):
            versions = [each for each in (old, new) if each]
            for resource in cache.list("IngressDaemonSet"):
                if any(concerns(each, resource, cache) for each in versions):
                    enqueue(key_of(resource.metadata))

    def on_resource(old: IngressDaemonSet | None, new: IngressDaemonSet | None) -> None:
        if seen := new or old:
            enqueue(key_of(seen.metadata))

    def on_child(old: Child | None, new: Child | None) -> None:
        owner = seen.metadata.controller if (seen := new or old) else None
        if seen and owner and owner.kind == KIND:
            enqueue(f"{seen.metadata.namespace}/{owner.name}")

    handlers: dict[str, Callable[[Any, Any], None]] = {"IngressDaemonSet": on_resource, "Node": on_node}
    for kind, informer in cache.informers.items():
        informer.on_change(handlers.get(kind, on_child))
    has_begun = True
    enqueue_all(cache, queue)


def concerns(node: FollowedNode, resource: IngressDaemonSet, cache: ObjectCache) -> bool:
    """Whether pods of *resource* may run there, by labels alone, or it has left something there."""
    metadata = resource.metadata
    own = Target("Deployment", metadata.namespace, deployment_name(metadata.name, node.name))
    return (
        may_match(resource, node)
        or metadata.uid in holders_of(node.metadata.annotations)
        or cache.get(own) is not None
    )


def matters(old: FollowedNode | None, new: FollowedNode | None) -> bool:
    """False for what the kubelet reports all the time."""
    return old is None or new is None or _relevant(old) != _relevant(new)


def _relevant(node: FollowedNode) -> tuple[object, ...]:
    metadata, spec = node.metadata, node.spec
    state = (spec.taints, spec.unschedulable, node.address, node.ready)
    return metadata.labels, metadata.annotations, metadata.deletion_timestamp, state


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

log = structlog.stdlib.get_logger(__name__)


@dataclass
class LastReconcile:
    """Of an IngressDaemonSet: what makes reconciles faster, or less frequent, and when marks were *seen* first."""

    took: float = 0.0
    status_at: float = -STATUS_PERIOD
    planned: Plan = field(default_factory=Plan)
    seen: Seen = field(default_factory=dict)


class Reconciler:
    def __init__(
        self,
        cache: ObjectCache,
        writer: Writer,
        readers: Readers,
        reporter: Reporter,
        settings: Callable[[], IngressDaemonSetSettings],
        clock: Clock,
    ) -> None:
        self._cache, self._writer, self._readers, self._reporter = cache, writer, readers, reporter
        self._settings, self._clock = settings, clock
        self._last: dict[str, LastReconcile] = {}

    def pace(self, key: str) -> float:
        """Seconds from a change of *key* to its reconcile."""
        last = self._last.get(key)
        return max(COMPANY, LOAD * last.took if last else 0.0)

    def reconcile(self, key: str) -> float | None:
        """Seconds until the next reconcile is due; None for not before a change. KubeError, LeadershipLost."""
        self._writer.settle(key)
        resource = self._cache.get(Target("IngressDaemonSet", *key.split("/", 1)))
        if resource is None:
            self._last.pop(key, None)
            self._reporter.forget(key)
            self._writer.retries.forget(key)
            return None
        last = self._last.setdefault(key, LastReconcile())
        unlabelled = self._cache.read_unlabelled()
        asked = questions_of(last.planned)
        snapshot, next_answer = self._readers.answered(self._snapshot(resource, last), asked)
        began = self._clock.monotonic()
        planned = last.planned = plan(snapshot, last.planned.rollouts)
        last.took = self._clock.monotonic() - began
        PLAN_SECONDS.observe(last.took)
        are_asked = questions_of(planned).are_within(asked)
        learned = self._writer.run(resource.metadata, planned.steps)
        self._reporter.altered(resource.metadata, planned.altered, lambda each: self._explain(resource, each))
        dues = (
            self.pace(key) if learned else None,
            unlabelled,
            next_answer,
            None if are_asked else self.pace(key),
            self._writer.retries.retry_after(key, {each.target for each in planned.actions}),
            self._report(resource, planned, last),
            (planned.requeue_at - self._clock.now()).total_seconds() if planned.requeue_at else None,
        )
        soonest = min((each for each in dues if each is not None), default=None)
        return None if soonest is None else max(soonest, self.pace(key))

    def _snapshot(self, resource: IngressDaemonSet, last: LastReconcile) -> Snapshot:
        """Of what is in the cache."""
        namespace, cache = resource.metadata.namespace, self._cache
        children = {kind: cache.in_namespace(kind, namespace) for kind in LABELS}
        deployments, nodes, now = children["Deployment"], cache.list("Node"), self._clock.now()
        last.seen = first_seen(last.seen, resource, nodes, deployments, now)
        writes = self._writer.retries.writes(key_of(resource.metadata), last.seen)
        recorded = plan_revisions(resource, children["ControllerRevision"])
        resource, rollback = resolved(resource, children["ControllerRevision"])
        settings = self._settings()
        if not settings.enabled:
            resource = suspended(resource)  # this process may be the last one that attaches nodes
        checkers = plan_health_checkers(resource, children, settings.health_checker)
        return Snapshot(
            resource, nodes, deployments, now, writes, rollback=rollback, checkers=checkers, recorded=recorded
        )

    def _explain(self, resource: IngressDaemonSet, each: Altered) -> Alteration | None:
        """From its managed fields, which are read only for this: they are most of an object. None on failure."""
        target = Target(each.kind, resource.metadata.namespace, each.name)
        try:
            return alteration(self._cache.fetch(target, Managed))
        except (KubeError, msgspec.MsgspecError) as error:
            log.warning("managed fields not read", kind=each.kind, name=each.name, error=str(error))
            return None

    def _report(self, resource: IngressDaemonSet, planned: Plan, last: LastReconcile) -> float | None:
        """Write the status if it changed, but not too often; seconds until there is more to report."""
        if planned.status is None:
            return None
        reminder = self._settings().detachment_reminder
        due = self._reporter.remind(resource.metadata, planned.unconfirmed, reminder, self._clock.now())
        self._reporter.undrained(resource.metadata, planned.undrained)
        if (status := raw_of(planned.status)) != resource.reported:
            if (left := last.status_at + STATUS_PERIOD - self._clock.monotonic()) > 0:
                return left
            patch = overwrite(status, resource.reported)
            try:
                guarded = not GUARDED.isdisjoint(patch)
                self._writer.write_status(resource.metadata, patch, guarded=guarded)
            except Conflict:
                return self.pace(key_of(resource.metadata))
            last.status_at = self._clock.monotonic()
            self._reporter.report(resource, planned.status)
            if guarded or planned.status.current_revision != resource.stored.current_revision:
                # What decides counts from now on, and the watch does not bring back our own write.
                due = self.pace(key_of(resource.metadata))
        self._reporter.measure(resource, planned)
        return due
