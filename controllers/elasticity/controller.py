"""The controllers of elasticity, for as long as this process leads: what they watch, and how they reconcile."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from operator import attrgetter

from api.elasticity import LOCAL, MODE
from controllers.controller import CLOCK, Clock, Controller, Watch
from controllers.elasticity.daemon_sets import DaemonSetCorrector
from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.nodes import WatchedNode, matters, tier_of
from controllers.elasticity.open_gates import keep_open
from controllers.elasticity.patches import TO_SUPER_NODES, cost_change
from controllers.elasticity.planner import STANDSTILL, Past, plan, stands_still
from controllers.elasticity.pods import KEPT, Observed, Pod, born, keep_only, oldest_first
from controllers.elasticity.reporter import Reporter, clear
from controllers.elasticity.return_home import reconciler as return_home
from controllers.elasticity.room import SuperNodes, counts, waits
from controllers.elasticity.snapshot import Snapshot, is_unstarted, location_of
from controllers.elasticity.sources import ElasticityInformers, Sources, informed
from controllers.elasticity.super_nodes import SuperNodeReconciler
from controllers.elasticity.takeover import Takeover
from controllers.elasticity.unstarted import Unstarted
from controllers.elasticity.writer import PAUSES, Writer
from controllers.manager import Context, identity
from controllers.workqueue import WorkQueue
from kube.client import Client
from kube.errors import Backoff
from kube.event_recorder import EventRecorder
from runtime import threading
from settings import ElasticitySettings
from settings import Settings as AllSettings

FENCE_PAUSES = Backoff(base=0.2, cap=5.0)
WORKERS = 4
"""They decide, which takes no I/O but the look-up of volumes."""
WRITERS, FENCERS = 32, 16
"""So many writes at once: a busy API server takes long for each, and with 8 gates open later by half (measured)."""
PERIOD = 5.0
"""Seconds between two runs of what is not asked for by events."""
RETRY = Backoff(base=1.0, cap=15.0)
CHECK = 0.5
"""Seconds within which a change of the settings is seen."""
LAST = (math.inf, 0, "")
READ = KEPT | {MODE}
"""The annotations that a decision reads."""

Settings = Callable[[], ElasticitySettings]


def run(context: Context, settings: Callable[[], AllSettings]) -> None:
    """Work until the context stops. While the feature is off, gates are opened."""

    def now() -> ElasticitySettings:
        return settings().elasticity

    while not context.stop.is_set():
        with _until_change(context, now) as (begun, until_then):
            if begun.enabled:
                place(until_then, now)
            else:
                keep_open(until_then)


def place(context: Context, settings: Settings) -> None:
    """As `run`, for as long as the feature is on."""
    begun = settings()
    with informed(context, settings) as (sources, informers):
        if context.stop.is_set():
            return
        elasticity = Elasticity(sources, informers, context.client, context.recorder)
        super_nodes = SuperNodeReconciler(context, informers.nodes.list, settings, avoided=elasticity.avoided)
        daemon_sets = DaemonSetCorrector(context, sources)
        returns = return_home.ReturnReconciler(
            sources, context.client, context.namespace, elasticity.reporter
        )
        try:
            context.run(
                elasticity.takeover,
                elasticity.writer,
                elasticity.placement,
                _side_work("elasticity-upkeep", elasticity.upkeep),
                _side_work("super-nodes", super_nodes.reconcile),
                _side_work("daemon-sets", daemon_sets.reconcile),
                *([_side_work("return-home", returns.reconcile)] if begun.return_home.enabled else ()),
            )
        finally:
            clear()
            return_home.count(0, 0)


class Elasticity:
    """A takeover fences pods, `reconcile` decides on keys, and what it decides is written.

    It keeps what this leader has seen and the cluster does not say: outages, standstills, and pods not taken.
    """

    def __init__(
        self,
        sources: Sources,
        informers: ElasticityInformers,
        client: Client,
        recorder: EventRecorder,
        clock: Clock = CLOCK,
    ) -> None:
        self._sources, self._settings, self._clock = sources, sources.settings(), clock
        self._names = sources.nodes().names
        self._deciding = threading.Lock()
        self._new, self._leaving, self._in_trouble, self._still = (
            Observed(clock.monotonic) for _ in range(4)
        )
        self._unstarted = Unstarted(client, clock.monotonic)
        keys = self._keys = WorkQueue("elasticity", clock=clock.monotonic)
        self.reporter = Reporter(recorder, clock.now, self._new)
        self.reporter.report_left(oldest_first(sources.pods.gated()))
        self._eligibility = Eligibility(client, clock.monotonic)
        self._takeover = Takeover(
            sources.pods,
            identity(),
            keys.add,
            is_limited=self._settings.max_super_pods.is_limited,
            clock=clock.monotonic,
        )
        writes = WorkQueue("elasticity-writes", pauses=PAUSES, clock=clock.monotonic)
        self._writer = Writer(sources.pods, self.reporter, writes, keys.add, clock.monotonic)
        self.takeover = Controller(
            WorkQueue("elasticity-takeover", pauses=FENCE_PAUSES, clock=clock.monotonic),
            self._takeover.reconcile,
            workers=FENCERS,
            first=self._takeover.due,
        )
        self.writer = Controller(writes, self._writer.reconcile, workers=WRITERS)
        self.placement = Controller(
            keys,
            self.reconcile,
            Watch(informers.pods, self._of_pod),
            Watch(informers.nodes, self._of_node),
            Watch(informers.switches, lambda _old, _new: self._undecided()),
            workers=WORKERS,
        )

    def reconcile(self, key: str) -> float | None:
        """Decide where the pods of one owner and revision belong, and start the writes that take them there."""
        if not self._takeover.is_over(key):
            return None  # the takeover queues the key
        with self._deciding:  # one at a time: the next one finds assumed what this one decides
            self._writer.short.setdefault(key, LAST)  # before it reads, so that it misses no room given back
            assumed = self._writer.assumed.copy()
            snapshot = self._sources.snapshot(key, assumed, self._clock.now())
            waiting = _uids(*(pod for pod in snapshot.pods if not (pod.node_name or pod.held)))
            snapshot = replace(snapshot, ages=self._new.ages(waiting))
            if snapshot.cluster.settings.home_failover.enabled:
                snapshot = replace(snapshot, avoided=self._unstarted.avoided(key))
            going = [action for action in assumed.values() if action.kind in TO_SUPER_NODES]
            outages = self._outages(snapshot.cluster.nodes.super)
            pods = self._sources.pods
            super_nodes = SuperNodes(snapshot, pods, self._eligibility, pods.count, going, outages)
            unstarted, writer, leaving = self._unstarted, self._writer, self._leaving.age
            is_stalled = self._is_stalled(key, snapshot)
            past = Past(is_stalled, writer.rests, writer.denied, unstarted.waited, unstarted.verdict, leaving)
            made = plan(snapshot, super_nodes, past)
            self._unstarted.remember(made.actions, snapshot.cluster.settings.home_failover.home_after)
            self._writer.start(made.actions)
            if refused := super_nodes.quota.refused:
                self._writer.short[key] = min(map(born, refused))
            else:
                self._writer.short.pop(key, None)
        for event in made.events:
            self.reporter.once(event.pod, event.reason, event.why, event.type)
        self.reporter.wait(made.waits)
        looked_up = [self._eligibility.look_up(pod) for pod in super_nodes.to_look_up]
        looked_up += [self._unstarted.look_up(pod) for pod in made.to_look_up]
        return min((*made.again, *looked_up), default=None)

    def avoided(self) -> Container[str]:
        """Super nodes that recently did not start pods."""
        if not self._sources.settings().home_failover.enabled:
            return ()
        with self._deciding:
            return self._unstarted.nodes()

    def _outages(self, nodes: Iterable[WatchedNode]) -> Mapping[str, float]:
        """The seconds, by name, for which super nodes have been in a state that passes.

        Nodes say since when, too, but a provider may renew that time with every report, and pods would wait
        indefinitely.
        """
        return self._in_trouble.only({node.metadata.name for node in nodes if node.in_trouble})

    def _is_stalled(self, key: str, snapshot: Snapshot) -> bool:
        """Whether its rollout has stood still for long, as this leader saw it. Only a limit holds one up."""
        if not snapshot.cluster.settings.max_super_pods.is_limited or not (gated := snapshot.gated):
            return False
        pods = self._sources.pods.of_workload(gated[0].workload)
        leaving = self._leaving.ages(_uids(*(pod for pod in pods if pod.metadata.deletion_timestamp)))
        if not stands_still(pods, key, snapshot.assumed, leaving):
            self._still.forget(key)
            return False
        return self._still.age(key) >= STANDSTILL

    def upkeep(self) -> None:
        """What no event asks for: follow the settings, report, and forget pods that are gone."""
        settings, pods = self._sources.settings(), self._sources.pods
        if settings != self._settings:
            self._settings = settings
            for key in self._all():
                self._keys.add(key)
        self._report()
        keep_only(lambda: _uids(*pods.gated(), *pods.unbound()), self._new.since, *self._eligibility.by_uid)
        keep_only(lambda: {pod.key for pod in pods.gated()}, self._still.since)
        with self._deciding:
            self._unstarted.forget()
        by_uid = (self._leaving.since, *self._writer.by_uid, *self._unstarted.by_uid, *self.reporter.by_uid)
        keep_only(lambda: _uids(*pods.all()), *by_uid)

    def _report(self) -> None:
        pods, settings = self._sources.pods, self._settings
        self.reporter.hold(settings.max_super_pods.budgets)
        gated, unbound = pods.gated(), pods.unbound()
        self.reporter.report_waiting(gated)
        tiers: Counter[int] = Counter()
        unstarted, nodes, sent = 0, self._sources.nodes(), pods.sent()
        for node in nodes.super:
            there = pods.holding(node.metadata.name)
            tiers[tier_of(node)] += len(there)
            unstarted += sum(is_unstarted(pod, nodes.names) for pod in there)
        away = (pod for pod in chain(sent, *map(pods.holding, nodes.names)) if counts(pod, nodes.names))
        self.reporter.count_tiers(tiers)
        self.reporter.count(
            pending=sum(pod.stuck for pod in unbound),
            capped=sum(map(waits, (*gated, *unbound))),
            local=pods.number_placed_locally() - sum(pod.active and pod.placed == LOCAL for pod in away),
            super=tiers.total() + len(sent),
            unstarted=unstarted,
        )

    def _of_pod(self, old: Pod | None, new: Pod | None) -> Iterable[str]:
        """What a decision does not read of a pod, the kubelet reports all the time."""
        if new and new.metadata.deletion_timestamp:
            self._leaving.age(new.metadata.uid)
        names = self._sources.nodes().names
        if old is not None and counts(old, names):
            keeps_place = new and counts(new, names) and new.metadata.labels == old.metadata.labels
            if not keeps_place:
                self._writer.give_back()
        if self._role(old) == self._role(new):
            return ()
        return {pod.key for pod in (old, new) if pod is not None}

    def _of_node(self, old: WatchedNode | None, new: WatchedNode | None) -> Iterable[str]:
        if not matters(old, new):
            return ()
        names = self._sources.nodes().names
        if names == self._names:
            return self._undecided()
        self._names = names
        return self._all()

    def _undecided(self) -> Iterable[str]:
        """Those of pods that wait for a limit first, by the oldest of them."""
        pods = oldest_first((*self._sources.pods.gated(), *self._sources.pods.unbound()))
        return dict.fromkeys(pod.key for pod in sorted(pods, key=waits, reverse=True))

    def _all(self) -> Iterable[str]:
        return dict.fromkeys((*self._undecided(), *(pod.key for pod in self._sources.pods.all())))

    def _role(self, pod: Pod | None) -> object:
        """All of a pod that a decision reads."""
        if pod is None:
            return None
        names, annotations = self._sources.nodes().names, pod.metadata.annotations
        return (
            pod.key,
            location_of(pod, names),
            pod.stuck,
            pod.held,
            self._settings.home_failover.enabled and is_unstarted(pod, names),
            cost_change(pod, names) is None,
            [annotations.get(name) for name in READ],
        )


def _side_work(name: str, work: Callable[[], None]) -> Controller:
    def reconcile(_: str) -> float:
        work()
        return PERIOD

    return Controller(name, reconcile, first=[name], rate=RETRY)


_WATCHED = attrgetter("enabled", "percentages", "return_home.enabled")
"""The settings that say what is watched, and what is kept of it: a change of one begins all of it again."""


def _uids(*pods: Pod) -> set[str]:
    return {pod.metadata.uid for pod in pods}


@contextmanager
def _until_change(context: Context, settings: Settings) -> Iterator[tuple[ElasticitySettings, Context]]:
    """The *settings* as they are now, and *context*, which stops, too, when one that is watched by changes."""
    begun, ending = settings(), threading.Event()

    def watch() -> None:
        while _WATCHED(settings()) == _WATCHED(begun):
            if ending.is_set() or context.stop.wait(CHECK):
                break
        ending.set()

    threading.Thread(target=watch, name="elasticity-switch", daemon=True).start()
    try:
        yield begun, replace(context, stop=ending)
    finally:
        ending.set()
