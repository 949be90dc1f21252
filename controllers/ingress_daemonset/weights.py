"""Detach nodes at Tencent CLB: weight 0 for their backends, read back, and their former weights afterwards.

All nodes of a load balancer share its calls, so the keys of the queue are load balancers. Which nodes are to be
detached is written on their Deployments, by the rollout. Former weights are in a ConfigMap per load balancer, in the
namespace of Drawbridge, where only the controllers write. On an object of a user, what is remembered could be forged,
and an unmanaged load balancer would get the weights that the user chooses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from functools import cache as cached

import msgspec
import structlog
from prometheus_client import Gauge

from api.health_checks import SCHEDULED
from api.ingress_daemonset import WEIGHTS_OF
from api.ingress_daemonset.template import FollowedNode
from api.ingress_daemonset.types import IngressDaemonSet, load_balancers
from cloud.client import LoadBalancers, caller
from cloud.errors import CloudError
from controllers.controller import Controller
from controllers.ingress_daemonset.children import Target, Workload
from controllers.ingress_daemonset.detachment import NodeBackends, deployment_mark_of
from controllers.ingress_daemonset.load_balancers import (
    LONGEST_CALL,
    BalancerSnapshot,
    FormerWeight,
    FormerWeights,
    Identity,
    is_at_rest,
    plan_weights,
    summed_up,
    unhealthy,
)
from controllers.ingress_daemonset.object_cache import LoadBalancerCache, ObjectCache
from controllers.manager import Context
from controllers.workqueue import PENDING, WorkQueue
from kube.client import Client
from kube.errors import Backoff, KubeError
from kube.store import Store
from kube.types import ConfigMap, key_of
from settings import Settings

KEY = "weights.json"
PREFIX = "drawbridge-weights-"
DECODER = msgspec.json.Decoder(dict[str, FormerWeight])

log = structlog.stdlib.get_logger(__name__)


class Unreadable(Exception):
    """The former weights at one load balancer are not known."""


class WeightStore:
    """Safe to share between threads, one for each load balancer.

    What is remembered is read before it is changed: Conflict or AlreadyExists when another process has written since.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._store = Store(client, namespace, ConfigMap)

    def load_balancers(self) -> list[str]:
        """Those of which weights are remembered. KubeError."""
        return [each.metadata.labels[WEIGHTS_OF] for each in self._store.list(WEIGHTS_OF)]

    def memory(self, load_balancer: str) -> FormerWeights:
        """Unreadable, KubeError."""
        found = self._store.read(name := f"{PREFIX}{load_balancer}")
        try:
            return DECODER.decode(found.data.get(KEY, "{}")) if found else {}
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Unreadable(
                f"ConfigMap {name} is unreadable, and with it the former weights at {load_balancer}: {error};"
                " correct it, or set the weights yourself and delete it"
            ) from None

    def put(self, load_balancer: str, memory: FormerWeights) -> None:
        """Durable when it returns. KubeError."""
        if memory:
            text = msgspec.json.encode(memory, order="deterministic").decode()
            self._store.write(f"{PREFIX}{load_balancer}", {WEIGHTS_OF: load_balancer}, data={KEY: text})
        else:
            self._store.delete(f"{PREFIX}{load_balancer}")


NODES = Gauge(
    "drawbridge_ingress_daemonset_load_balancer_nodes",
    "Nodes whose backends wait for weight 0, have it, and wait for their former weights.",
    ["load_balancer", "state"],
)
FAILED = Gauge(
    "drawbridge_ingress_daemonset_load_balancer_failed",
    "Whether the weights of a load balancer could not be read, remembered or written at the last attempt.",
    ["load_balancer"],
)
SOON, PERIOD = 1.0, 5.0
"""Seconds until the weights are read again: after a write, and while nodes are detached or late writes may arrive."""
INSTANCE = re.compile(r"ins-[0-9a-z]+")


class WeightReconciler:
    """*cloud* connects, or raises a CloudError; *changed* gets the keys of IngressDaemonSets to reconcile.

    *known* is what it finds out.
    """

    def __init__(
        self,
        cloud: Callable[[], LoadBalancers],
        store: WeightStore,
        changed: Callable[[str], None],
        cache: ObjectCache,
        known: LoadBalancerCache,
        queue: WorkQueue,
    ) -> None:
        self._cloud, self._store, self._changed = cloud, store, changed
        self._cache, self._known, self._queue = cache, known, queue

    @property
    def controller(self) -> Controller:
        return Controller(self._queue, self.reconcile, workers=WORKERS)

    def enqueue_all(self) -> None:
        """KubeError."""
        used = {name for each in self._cache.list("IngressDaemonSet") for name in load_balancers(each)}
        for each in sorted(used.union(self._store.load_balancers())):
            self._queue.add(each)

    def reconcile(self, load_balancer: str) -> float | None:
        """Seconds until it is read again; None while only nodes without pods are detached, or none. LeadershipLost."""
        detached, attached = self._wanted(load_balancer)
        try:
            memory = self._store.memory(load_balancer)
            if detached or attached or memory:
                return self._weigh(load_balancer, memory, detached, attached)
        except (CloudError, KubeError, Unreadable) as error:
            self._failed(load_balancer, attached.union(detached), error)
            return PENDING
        self._found(load_balancer, {})
        return None

    def _weigh(
        self, load_balancer: str, memory: FormerWeights, detached: Mapping[str, str], attached: Set[str]
    ) -> float | None:
        cloud = self._cloud()
        backends = cloud.backends(load_balancer)
        now = self._known.clock.now()
        known = {each.name: _identity(each) for each in self._cache.list("Node")}
        serving = self._serving(load_balancer, memory.values())
        seen = BalancerSnapshot(backends, memory, known, detached, attached, serving)
        planned = plan_weights(seen, now)
        if planned.memory != memory:
            self._store.put(load_balancer, planned.memory)
        if planned.weights:
            cloud.set_weights(load_balancer, planned.weights)
            log.info("weights written", load_balancer=load_balancer, backends=len(planned.weights))
        before = self._known.nodes(load_balancer)
        since = {name: each.detached_since for name, each in before.items() if each.detached_since}
        nodes = dict(summed_up(load_balancer, seen, since, now))
        restored = [name for name in attached if name in nodes and nodes[name].restored]
        healthy = cloud.healthy(load_balancer) if restored else {}
        nodes |= {name: replace(nodes[name], unhealthy=unhealthy(name, seen, healthy)) for name in restored}
        self._found(load_balancer, nodes, detached)
        if planned.weights:
            return SOON
        return PERIOD if detached or attached or not is_at_rest(seen, planned.memory, now) else None

    def _wanted(self, load_balancer: str) -> tuple[dict[str, str], set[str]]:
        """The nodes to detach, with the uid of an IngressDaemonSet each, and those that wait to be attached."""
        detached, attached = dict[str, str](), set[str]()
        for held in self._cache.list("Deployment"):
            mark = deployment_mark_of(held.metadata.annotations)
            if mark and self._uses(held, load_balancer):
                if mark.attached:
                    attached.add(held.node)
                else:
                    detached[held.node] = held.metadata.controller.uid
        return detached, attached

    def _serving(self, load_balancer: str, memory: Iterable[FormerWeight]) -> set[str] | None:
        """The nodes with pods of those that use *load_balancer*, or did when they detached the node.

        None while no IngressDaemonSet uses it.
        """
        users = {
            each.metadata.uid for each in self._users(load_balancer) if self._may_use(each, load_balancer)
        }
        if not users:
            return None
        former = {(each.node, each.owner) for each in memory}
        return {
            each.node
            for each in self._cache.list("Deployment")
            if each.status.available_replicas
            and (resource := self._owner(each))
            and ((owner := resource.metadata.uid) in users or (each.node, owner) in former)
        }

    def _may_use(self, resource: IngressDaemonSet, load_balancer: str) -> bool:
        refusal = self._known.settings().refusal(load_balancer, resource.metadata.namespace)
        return refusal is None and not resource.metadata.deletion_timestamp

    def _owner(self, held: Workload) -> IngressDaemonSet | None:
        """In the same namespace: a Deployment can name any uid."""
        owner, namespace = held.metadata.controller, held.metadata.namespace
        found = self._cache.get(Target("IngressDaemonSet", namespace, owner.name)) if owner else None
        return found if found and held.is_of(found.metadata.uid) else None

    def _uses(self, held: Workload, load_balancer: str) -> bool:
        """Whether its IngressDaemonSet detaches nodes from *load_balancer*, and may."""
        if (resource := self._owner(held)) is None:
            return False
        weights = resource.spec.update_strategy.rolling_update.weights
        is_named = weights is not None and load_balancer in weights.load_balancers
        return is_named and self._may_use(resource, load_balancer)

    def _found(
        self, load_balancer: str, nodes: Mapping[str, NodeBackends], detached: Collection[str] = ()
    ) -> None:
        FAILED.labels(load_balancer).set(0)
        off = sum(each.detached_since is not None for each in nodes.values())
        restoring = sum(not each.restored for name, each in nodes.items() if name not in detached)
        NODES.labels(load_balancer, "detaching").set(len(detached) - off)
        NODES.labels(load_balancer, "detached").set(off)
        NODES.labels(load_balancer, "restoring").set(restoring)
        self._publish(load_balancer, nodes)

    def _failed(self, load_balancer: str, wanted: Set[str], error: Exception) -> None:
        FAILED.labels(load_balancer).set(1)
        pause = self._queue.retry(load_balancer, error)
        log.warning("weights not reconciled", load_balancer=load_balancer, error=str(error), pause=pause)
        if not self._known.nodes(load_balancer):
            unknown = NodeBackends(load_balancer, error=f"cannot be read or written: {error}")
            self._publish(load_balancer, dict.fromkeys(wanted, unknown))

    def _publish(self, load_balancer: str, nodes: Mapping[str, NodeBackends]) -> None:
        if self._known.put(load_balancer, nodes):
            for each in self._users(load_balancer):
                self._changed(key_of(each.metadata))

    def _users(self, load_balancer: str) -> Iterator[IngressDaemonSet]:
        found: list[IngressDaemonSet] = [*self._cache.list("IngressDaemonSet")]
        return (each for each in found if load_balancer in load_balancers(each))


def _identity(node: FollowedNode) -> Identity:
    instance = node.spec.provider_id.rpartition("/")[2]
    return (instance if INSTANCE.fullmatch(instance) else "", *node.addresses)


WORKERS = 4
"""Load balancers at a time; the calls for each come one after the other."""
PAUSES = Backoff(base=0.5, cap=30.0)


def reconciler_of(
    context: Context,
    cache: ObjectCache,
    known: LoadBalancerCache,
    settings: Callable[[], Settings],
    changed: Callable[[str], None],
) -> WeightReconciler:
    """One whose queue gets all load balancers, and those that change."""
    store = WeightStore(context.client, context.namespace)
    queue = WorkQueue("ingress_daemonset_weights", pauses=PAUSES)
    cloud = _connection(context, settings)
    reconciler = WeightReconciler(cloud, store, changed, cache, known, queue)
    enqueue_changes(cache, queue.add)
    context.wait_for(reconciler.enqueue_all, PAUSES, "former weights")
    return reconciler


def _connection(context: Context, settings: Callable[[], Settings]) -> Callable[[], LoadBalancers]:
    """One for all load balancers, so that they share the rates."""

    @cached
    def connect() -> LoadBalancers:
        cloud = settings().cloud
        # With timeouts that the planner counts on.
        call, attempt = (min(each, LONGEST_CALL) for each in (cloud.call_timeout, cloud.attempt_timeout))
        cloud = cloud.model_copy(update={"call_timeout": call, "attempt_timeout": attempt})
        within, sleep = context.grace, context.sleep
        return LoadBalancers(caller(cloud, may_write=context.check, writes_within=within, sleep=sleep))

    return connect


def enqueue_changes(cache: ObjectCache, enqueue: Callable[[str], None]) -> None:
    """The load balancers of IngressDaemonSets that change, or whose nodes are detached or attached."""

    def on_resource(old: IngressDaemonSet | None, new: IngressDaemonSet | None) -> None:
        if old and new and _decides(old) == _decides(new):
            return
        for name in {name for resource in (old, new) if resource for name in load_balancers(resource)}:
            enqueue(name)

    def on_deployment(old: Workload | None, new: Workload | None) -> None:
        owner = seen.metadata.controller if (seen := new or old) else None
        if seen is None or owner is None or _state(old) == _state(new):
            return
        resource = cache.get(Target("IngressDaemonSet", seen.metadata.namespace, owner.name))
        for each in load_balancers(resource) if resource else ():
            enqueue(each)

    cache.on_change("IngressDaemonSet", on_resource)
    cache.on_change("Deployment", on_deployment)


def _decides(resource: IngressDaemonSet) -> tuple[object, ...]:
    return resource.spec, resource.metadata.deletion_timestamp


def _state(held: Workload | None) -> tuple[str, bool]:
    """Its mark, and whether it has pods that serve."""
    if held is None:
        return "", False
    return held.metadata.annotations.get(SCHEDULED, ""), bool(held.status.available_replicas)
