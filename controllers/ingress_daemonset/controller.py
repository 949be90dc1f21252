"""The wiring of ingress_daemonset: informers whose handlers only enqueue keys, and one worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from api.ingress_daemonset import KIND, REVISION_OF
from api.ingress_daemonset.node_matching import FollowedNode
from api.ingress_daemonset.types import IngressDaemonSet
from controllers.clock import CLOCK
from controllers.executor import Executor
from controllers.ingress_daemonset.clb.cache import LoadBalancerCache
from controllers.ingress_daemonset.health_check_reader import HealthCheckReader
from controllers.ingress_daemonset.metric_reader import MetricReader
from controllers.ingress_daemonset.object_cache import LABELS, NAMESPACE, RESOURCES, ObjectCache, informers_of
from controllers.ingress_daemonset.prometheus import ask
from controllers.ingress_daemonset.reconciler import Readers, Reconciler
from controllers.ingress_daemonset.reporter import Reporter
from controllers.ingress_daemonset.revision_reconciler import RevisionReconciler
from controllers.ingress_daemonset.revisions import CONTROLLER_REVISIONS, Revision
from controllers.ingress_daemonset.types import Child
from controllers.ingress_daemonset.writer import RetryState, Writer
from controllers.manager import Context
from controllers.workqueue import WorkQueue
from kube.client import Client
from kube.errors import Backoff
from kube.informer import Informer
from kube.resources import Selection
from kube.types import key_of
from runtime import threading, time
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
    revisions = context.informers.of(CONTROLLER_REVISIONS, Revision, Selection(label_selector=REVISION_OF))
    known = LoadBalancerCache(lambda: settings().ingress_daemonset.clb)
    cache = ObjectCache(
        client,
        informers_of(context.informers),
        revisions=lambda namespace: revisions.by_index(NAMESPACE, namespace),
        backends=known.of,
    )
    if not context.wait_synced(*cache.informers.values(), revisions):
        return
    history = RevisionReconciler(context, revisions, cache.informers["IngressDaemonSet"].get)
    with reconciling(context, cache, settings) as reconciler:
        queue = WorkQueue("ingress_daemonset", pauses=PAUSES)
        revision_queue = WorkQueue("ingress_daemonset_revisions", pauses=PAUSES)
        enqueue_changes(cache, queue, reconciler.pace)
        enqueue_templates(cache, revisions, revision_queue.add)
        with (
            weighing(context, cache, known, settings, queue.add) as enqueue_load_balancers,
            context.working(queue, reconciler.reconcile),
            context.working(revision_queue, history.reconcile),
        ):
            while wait_for_resync(context.stop, lambda: settings().ingress_daemonset):
                enqueue_load_balancers()
                for each in cache.list("IngressDaemonSet"):
                    queue.add(key_of(each.metadata))


def wait_for_resync(stop: threading.Event, settings: Callable[[], IngressDaemonSetSettings]) -> bool:
    """Until all are to be looked at, after the period or because the feature was switched; False at the end."""
    began, enabled = time.monotonic(), settings().enabled
    while not stop.wait(min(LOOK, settings().resync_period)):
        if settings().enabled != enabled or time.monotonic() - began >= settings().resync_period:
            return True
    return False


@contextmanager
def weighing(
    context: Context,
    cache: ObjectCache,
    known: LoadBalancerCache,
    settings: Callable[[], Settings],
    changed: Callable[[str], None],
) -> Iterator[Callable[[], None]]:
    """Set weights at load balancers within the block, if it is enabled; gives a function that queues all of them.

    Only then the cloud's libraries are loaded.
    """
    if not settings().ingress_daemonset.clb.enabled:
        yield lambda: None
        return
    clb = import_module("controllers.ingress_daemonset.clb.controller")
    with clb.weighing(context, cache, known, settings, changed) as enqueue_all:
        yield enqueue_all


def require_served(client: Client) -> bool:
    """True, or NotServed."""
    if not client.serves(RESOURCES["IngressDaemonSet"]):
        raise NotServed("the API server does not know the kind; its CRD is part of the chart")
    return True


@contextmanager
def reconciling(
    context: Context, cache: ObjectCache, settings: Callable[[], Settings]
) -> Iterator[Reconciler]:
    """A Reconciler with its executors; all work that it submitted has ended afterwards."""
    reporter = Reporter(context.recorder)
    with (
        Executor("ingress-daemonset", WRITERS) as submit,
        Executor("ingress-daemonset", READERS) as submit_read,
        Executor("ingress-daemonset", QUERIES) as submit_query,
    ):

        def ask_prometheus(query: str) -> float:
            return ask(settings().ingress_daemonset.prometheus, query)

        writer = Writer(context, cache, RetryState(CLOCK), reporter, submit)
        readers = Readers(
            HealthCheckReader(submit_read, context.stop),
            MetricReader(submit_query, context.stop, ask_prometheus, CLOCK),
        )
        yield Reconciler(cache, writer, readers, reporter, lambda: settings().ingress_daemonset, CLOCK)


def enqueue_changes(cache: ObjectCache, queue: WorkQueue, pace: Callable[[str], float]) -> None:
    def enqueue(key: str) -> None:
        queue.add_after(key, pace(key))

    def on_node(old: FollowedNode | None, new: FollowedNode | None) -> None:
        if matters(old, new):
            for each in cache.list("IngressDaemonSet"):
                enqueue(key_of(each.metadata))

    def on_resource(old: IngressDaemonSet | None, new: IngressDaemonSet | None) -> None:
        if seen := new or old:
            enqueue(key_of(seen.metadata))

    def on_child(old: Child | None, new: Child | None) -> None:
        owner = seen.metadata.controller if (seen := new or old) else None
        if seen and owner and owner.kind == KIND:
            enqueue(f"{seen.metadata.namespace}/{owner.name}")

    handlers: dict[str, Callable[[Any, Any], None]] = {"IngressDaemonSet": on_resource, "Node": on_node}
    for kind, informer in cache.informers.items():
        informer.on_change(on_child if kind in LABELS else handlers[kind])


def enqueue_templates(
    cache: ObjectCache, revisions: Informer[Revision], enqueue: Callable[[str], None]
) -> None:
    """A change of a template, of the one that is proven, or of a revision by another client."""

    def on_resource(old: IngressDaemonSet | None, new: IngressDaemonSet | None) -> None:
        if new and (old is None or _templates(old) != _templates(new)):
            enqueue(key_of(new.metadata))

    def on_revision(old: Revision | None, new: Revision | None) -> None:
        owner = seen.metadata.controller if (seen := new or old) else None
        if seen and owner and owner.kind == KIND:
            enqueue(f"{seen.metadata.namespace}/{owner.name}")

    cache.on_change("IngressDaemonSet", on_resource)
    revisions.on_change(on_revision)


def _templates(resource: IngressDaemonSet) -> tuple[object, ...]:
    return resource.spec, resource.current_revision


def matters(old: FollowedNode | None, new: FollowedNode | None) -> bool:
    """False for what the kubelet reports all the time."""
    return old is None or new is None or _relevant(old) != _relevant(new)


def _relevant(node: FollowedNode) -> tuple[object, ...]:
    metadata, spec = node.metadata, node.spec
    state = (spec.taints, spec.unschedulable, node.address, node.ready)
    return metadata.labels, metadata.annotations, metadata.deletion_timestamp, state
