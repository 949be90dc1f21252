"""Wire the feature: informers, work queues and reconcilers, for as long as this process leads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from controllers.elasticity.assembly import Elasticity
from controllers.elasticity.daemon_sets import DaemonSetCorrector
from controllers.elasticity.gate_opener import keep_open
from controllers.elasticity.informers import GlobalSwitch, informed
from controllers.elasticity.nodes import NodeCache
from controllers.elasticity.pod_cache import PodCache
from controllers.elasticity.snapshot import Sources
from controllers.elasticity.super_node_reconciler import SuperNodeReconciler
from controllers.manager import Context
from controllers.workqueue import WorkQueue
from kube.backoff import Backoff
from settings import ElasticitySettings
from settings import Settings as AllSettings

WORKERS = 4
"""They decide, which takes no I/O but the look-up of volumes."""
WRITERS, FENCERS = 32, 16
"""As many writes at once as keep a pod from waiting: controllers create pods with hundreds of requests at a time."""
PERIOD = 5.0
"""Seconds between two runs of what is not asked for by events."""
RETRY = Backoff(base=1.0, cap=15.0)
CHECK = 0.5
"""Seconds within which a change of the settings is seen."""

Settings = Callable[[], ElasticitySettings]


def enabled(settings: AllSettings) -> bool:
    return settings.elasticity.enabled or settings.elasticity.open_gates


def run(context: Context, settings: Callable[[], AllSettings]) -> None:
    """Work until the context stops. While the feature is off, gates are opened."""

    def now() -> ElasticitySettings:
        return settings().elasticity

    while not context.stop.is_set():
        is_on = now().enabled
        with _while(lambda is_on=is_on: now().enabled == is_on, context.stop) as ending:  # type: ignore[misc]
            (place if is_on else keep_open)(replace(context, stop=ending), now)


def place(context: Context, settings: Settings) -> None:
    """As `run`, for as long as the feature is on."""
    with informed(context, settings()) as informers:
        if context.stop.is_set():
            return
        pods = PodCache(context.client, informers.pods, context.check)
        nodes = NodeCache(informers.nodes)
        switch = GlobalSwitch(informers.switches, context.recorder, settings)
        sources = Sources(pods, nodes, settings, switch.read, informers.first_ordinal)
        parts = Elasticity(sources, context.client, context.recorder)
        pods.on_change(parts.handlers.pod_changed)
        informers.nodes.on_change(parts.handlers.node_changed)
        informers.switches.on_change(lambda *_: parts.handlers.look_again())
        super_nodes = SuperNodeReconciler(context, informers.nodes.list, settings)
        daemon_sets = DaemonSetCorrector(context, sources)
        with (
            context.working(parts.fences, parts.takeover.reconcile, FENCERS),
            context.working(parts.writes, parts.writer.reconcile, WRITERS),
            context.working(parts.keys, parts.reconciler.reconcile, WORKERS),
            _periodically(context, "elasticity-upkeep", parts.upkeep.run),
            _periodically(context, "super-nodes", super_nodes.reconcile),
            _periodically(context, "daemon-sets", daemon_sets.reconcile),
        ):
            context.stop.wait()


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
