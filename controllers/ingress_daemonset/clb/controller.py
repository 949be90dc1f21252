"""The wiring of the weights at load balancers: one queue, whose keys are load balancers, and the cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache as cached

from api.health_checks import SCHEDULED
from api.ingress_daemonset.types import IngressDaemonSet, load_balancers
from cloud.client import caller
from cloud.load_balancers import LoadBalancers
from controllers.ingress_daemonset.actions import Target
from controllers.ingress_daemonset.clb.cache import LoadBalancerCache
from controllers.ingress_daemonset.clb.planner import CALL_TIMEOUT
from controllers.ingress_daemonset.clb.reconciler import Edges, WeightReconciler
from controllers.ingress_daemonset.clb.store import WeightStore
from controllers.ingress_daemonset.object_cache import ObjectCache
from controllers.ingress_daemonset.types import Workload
from controllers.manager import Context
from controllers.workqueue import Stopping, WorkQueue
from kube.errors import Backoff
from settings import CloudSettings, Settings

WORKERS = 4
"""Load balancers at a time; the calls for each come one after the other."""
PAUSES = Backoff(base=0.5, cap=30.0)


@contextmanager
def weighing(
    context: Context,
    cache: ObjectCache,
    known: LoadBalancerCache,
    settings: Callable[[], Settings],
    changed: Callable[[str], None],
) -> Iterator[Callable[[], None]]:
    """Work within the block; gives a function that queues all load balancers."""
    store = WeightStore(context.client, context.namespace)
    context.wait_for(store.load, PAUSES, "former weights")
    queue = WorkQueue("ingress_daemonset_weights", pauses=PAUSES)
    edges = Edges(_connection(context, settings), store, changed)
    reconciler = WeightReconciler(edges, cache, known, lambda: settings().ingress_daemonset.clb, queue)
    enqueue_changes(cache, queue.add)
    reconciler.enqueue_all()
    with context.working(queue, reconciler.reconcile, WORKERS):
        yield reconciler.enqueue_all


def _connection(context: Context, settings: Callable[[], Settings]) -> Callable[[], LoadBalancers]:
    """One for all load balancers, so that they share the rates."""

    def sleep(seconds: float) -> None:
        if context.stop.wait(seconds):
            raise Stopping("a wait for the cloud was cut short")

    @cached
    def connect() -> LoadBalancers:
        cloud = _in_time(settings().cloud)
        return LoadBalancers(caller(cloud, may_write=context.check, writes_within=context.grace, sleep=sleep))

    return connect


def _in_time(cloud: CloudSettings) -> CloudSettings:
    """With timeouts that the planner counts on."""
    call, attempt = (min(each, CALL_TIMEOUT) for each in (cloud.call_timeout, cloud.attempt_timeout))
    return cloud.model_copy(update={"call_timeout": call, "attempt_timeout": attempt})


def enqueue_changes(cache: ObjectCache, enqueue: Callable[[str], None]) -> None:
    """The load balancers of IngressDaemonSets that change, or whose nodes are detached or attached."""

    def on_resource(old: IngressDaemonSet | None, new: IngressDaemonSet | None) -> None:
        if (
            old
            and new
            and (old.spec, old.metadata.deletion_timestamp)
            == (
                new.spec,
                new.metadata.deletion_timestamp,
            )
        ):
            return
        for each in {name for resource in (old, new) if resource for name in load_balancers(resource)}:
            enqueue(each)

    def on_deployment(old: Workload | None, new: Workload | None) -> None:
        owner = seen.metadata.controller if (seen := new or old) else None
        if seen is None or owner is None or _state(old) == _state(new):
            return
        resource = cache.get(Target("IngressDaemonSet", seen.metadata.namespace, owner.name))
        for each in load_balancers(resource) if resource else ():
            enqueue(each)

    cache.on_change("IngressDaemonSet", on_resource)
    cache.on_change("Deployment", on_deployment)


def _state(held: Workload | None) -> tuple[str, bool]:
    """Its mark, and whether it has pods that serve."""
    return (
        (held.metadata.annotations.get(SCHEDULED, ""), bool(held.status.available_replicas))
        if held
        else ("", False)
    )
