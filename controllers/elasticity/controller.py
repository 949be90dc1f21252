"""Wire the feature: informers, work queues and reconcilers, for as long as this process leads."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from api.elasticity import MODE
from controllers.clock import CLOCK, Clock
from controllers.elasticity.daemon_sets import DaemonSetCorrector
from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.nodes import NodeCache, Outages, WatchedNode, matters
from controllers.elasticity.open_gates import keep_open
from controllers.elasticity.patches import cost_change
from controllers.elasticity.planner import standing
from controllers.elasticity.pod_cache import PodCache
from controllers.elasticity.pods import KEPT, Pod, oldest_first
from controllers.elasticity.quota import Quota, counts, waits
from controllers.elasticity.reconciler import Reconciler, Rejections, Standstills, SuperNodeState
from controllers.elasticity.reporter import Reporter
from controllers.elasticity.return_home.reconciler import ReturnHomeController
from controllers.elasticity.snapshot import GlobalSwitch, Sources, informed
from controllers.elasticity.super_nodes import SuperNodeReconciler
from controllers.elasticity.takeover import Takeover
from controllers.elasticity.tiers import tier_of
from controllers.elasticity.writer import PAUSES, Writer
from controllers.manager import Context
from controllers.workqueue import WorkQueue
from kube.client import Client
from kube.errors import Backoff
from kube.event_recorder import EventRecorder
from runtime import secrets, threading
from settings import ElasticitySettings
from settings import Settings as AllSettings

FENCE_PAUSES = Backoff(base=0.2, cap=5.0)


class Elasticity:
    """Keys are decided on, and pods written to and fenced, by three queues."""

    def __init__(
        self, sources: Sources, client: Client, recorder: EventRecorder, clock: Clock = CLOCK
    ) -> None:
        self.keys = WorkQueue("elasticity", clock=clock.monotonic)
        self.writes = WorkQueue("elasticity-writes", pauses=PAUSES, clock=clock.monotonic)
        self.fences = WorkQueue("elasticity-takeover", pauses=FENCE_PAUSES, clock=clock.monotonic)
        self.takeover = Takeover(
            sources.pods,
            f"{os.environ.get('POD_NAME', 'controllers')}_{secrets.token_hex(4)}",
            self.keys.add,
            is_limited=sources.settings().max_super_pods.is_limited,
            clock=clock.monotonic,
        )
        self._sources, self._settings = sources, sources.settings()
        quota = Quota(self.keys.add, clock.now)
        self._reporter = Reporter(recorder, clock.now)
        self._reporter.report_left(oldest_first(sources.pods.having("gated")))
        self._eligibility = Eligibility(
            client, lambda: sources.settings().excluded_namespaces, clock.monotonic
        )
        self.writer = Writer(sources.pods, quota, self._reporter, self.writes, self.keys.add, clock.monotonic)
        self._standstills = Standstills(clock.monotonic)
        state = SuperNodeState(
            quota,
            self._eligibility,
            Outages(clock.monotonic),
            Rejections(clock.monotonic),
            self._standstills,
        )
        self.reconciler = Reconciler(sources, self.takeover, self.writer, state, self._reporter, clock.now)
        self.handlers = EventHandlers(sources, quota, self.keys.add)
        for uid in self.takeover.due:
            self.fences.add(uid)

    def upkeep(self) -> None:
        """What no event asks for: follow the settings, report, and forget pods that are gone."""
        settings, having = self._sources.settings(), self._sources.pods.having
        if settings != self._settings:
            self._settings = settings
            self.handlers.look_again(all_keys=True)
        self._report()
        self._eligibility.keep_only(lambda: _uids(*having("gated"), *having("unbound")))
        self._standstills.keep_only(lambda: {pod.key for pod in having("gated")})
        for each in (self.writer, self._reporter):
            each.keep_only(lambda: _uids(*self._sources.pods.all()))

    def _report(self) -> None:
        having, settings = self._sources.pods.having, self._settings
        self._reporter.hold(settings.max_super_pods.budgets)
        self._reporter.report_waiting(having("gated"))
        tiers: Counter[int] = Counter()
        for node in self._sources.nodes().super:
            tiers[tier_of(node)] += len(having(f"held {node.metadata.name}"))
        self._reporter.count_tiers(tiers)
        self._reporter.count(
            pending=sum(pod.stuck_since is not None for pod in having("unbound")),
            capped=sum(map(waits, (*having("gated"), *having("unbound")))),
            local=len(having("placed local")),
            super=tiers.total() + len(having("sent")),
        )


READ = KEPT | {MODE}
"""The annotations that a decision reads."""


class EventHandlers:
    """*enqueue* takes keys; handlers do nothing else that takes time."""

    def __init__(self, sources: Sources, quota: Quota, enqueue: Callable[[str], None]) -> None:
        self._sources, self._quota, self._enqueue = sources, quota, enqueue
        self._names = sources.nodes().names

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        seen = new or old
        if seen is None:
            return
        self.count(seen)
        if self._role(old) != self._role(new):
            for key in {pod.key for pod in (old, new) if pod is not None}:
                self._enqueue(key)

    def node_changed(self, old: WatchedNode | None, new: WatchedNode | None) -> None:
        if not matters(old, new):
            return
        names = self._sources.nodes().names
        if names == self._names:
            self.look_again()
            return
        self._names = names
        for pod in self._sources.pods.all():
            self.count(pod)
        self.look_again(all_keys=True)

    def look_again(self, *, all_keys: bool = False) -> None:
        """At all keys with undecided pods, or at all: the switch, the nodes or the settings have changed."""
        pods = self._sources.pods
        found: Iterable[Pod] = pods.all() if all_keys else (*pods.having("gated"), *pods.having("unbound"))
        for key in dict.fromkeys(pod.key for pod in found):
            self._enqueue(key)

    def count(self, pod: Pod) -> None:
        """All that follows from a write of ours: it was decided."""
        self._quota.see(pod, lambda: self._counts(self._sources.pods.current(pod)))

    def _counts(self, pod: Pod | None) -> bool:
        """Whether it is on a super node, or may come there."""
        return pod is not None and counts(pod, self._sources.nodes().names)

    def _role(self, pod: Pod | None) -> object:
        """All of a pod that a decision reads, without what the kubelet reports all the time."""
        if pod is None:
            return None
        names, annotations = self._sources.nodes().names, pod.metadata.annotations
        return (
            pod.key,
            standing(pod, names),
            pod.stuck_since,
            cost_change(pod, names) is None,
            [annotations.get(name) for name in READ],
        )


WORKERS = 4
"""They decide, which takes no I/O but the look-up of volumes."""
WRITERS, FENCERS = 32, 16
"""So many writes at once: a busy API server takes long for each, and with 8 gates open later by half (measured)."""
PERIOD = 5.0
"""Seconds between two runs of what is not asked for by events."""
RETRY = Backoff(base=1.0, cap=15.0)
CHECK = 0.5
"""Seconds within which a change of the settings is seen."""

Settings = Callable[[], ElasticitySettings]


def run(context: Context, settings: Callable[[], AllSettings]) -> None:
    """Work until the context stops. While the feature is off, gates are opened."""

    def now() -> ElasticitySettings:
        return settings().elasticity

    while not context.stop.is_set():
        begun = now()
        with _while(lambda begun=begun: _watches_the_same(begun, now()), context.stop) as ending:  # type: ignore[misc]
            (place if begun.enabled else keep_open)(replace(context, stop=ending), now)


def place(context: Context, settings: Settings) -> None:
    """As `run`, for as long as the feature is on."""
    with informed(context, settings()) as informers:
        if context.stop.is_set():
            return
        pods = PodCache(context.client, informers.pods)
        nodes = NodeCache(informers.nodes)
        switch = GlobalSwitch(informers.switches, context.recorder, settings)
        sources = Sources(pods, nodes, settings, switch.read, informers.first_ordinal, informers.replicas)
        parts = Elasticity(sources, context.client, context.recorder)
        pods.on_change(parts.handlers.pod_changed)
        pods.on_write(parts.handlers.count)
        informers.nodes.on_change(parts.handlers.node_changed)
        informers.switches.on_change(lambda *_: parts.handlers.look_again())
        super_nodes = SuperNodeReconciler(context, informers.nodes.list, settings)
        daemon_sets = DaemonSetCorrector(context, sources)
        returns = ReturnHomeController(context, sources)
        with (
            context.working(parts.fences, parts.takeover.reconcile, FENCERS),
            context.working(parts.writes, parts.writer.reconcile, WRITERS),
            context.working(parts.keys, parts.reconciler.reconcile, WORKERS),
            _periodically(context, "elasticity-upkeep", parts.upkeep),
            _periodically(context, "super-nodes", super_nodes.reconcile),
            _periodically(context, "daemon-sets", daemon_sets.reconcile),
            closing(returns),
            _periodically(context, "return-home", returns.reconcile),
        ):
            context.stop.wait()


def _watches_the_same(one: ElasticitySettings, other: ElasticitySettings) -> bool:
    return (one.enabled, one.percentages) == (other.enabled, other.percentages)


def _uids(*pods: Pod) -> set[str]:
    return {pod.metadata.uid for pod in pods}


@contextmanager
def _periodically(context: Context, name: str, work: Callable[[], None]) -> Iterator[None]:
    queue = WorkQueue(name, pauses=RETRY)
    queue.add(name)

    def reconcile(_: str) -> float:
        work()
        return PERIOD

    with context.working(queue, reconcile):
        yield


@contextmanager
def _while(holds: Callable[[], bool], stop: threading.Event) -> Iterator[threading.Event]:
    """An event that is set when *stop* is, or when something does not hold any more."""
    ending = threading.Event()

    def watch() -> None:
        while not ending.is_set() and holds() and not stop.wait(CHECK):
            pass
        ending.set()

    threading.Thread(target=watch, name="elasticity-switch", daemon=True).start()
    try:
        yield ending
    finally:
        ending.set()
