"""Reconcile the weights of one load balancer at a time: read them, remember, write, and read them again.

All nodes of a load balancer share its calls, so keys are load balancers. Which nodes are to be detached is written on
their Deployments, by the rollout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import structlog
from prometheus_client import Gauge

from api.ingress_daemonset.node_matching import FollowedNode
from api.ingress_daemonset.types import IngressDaemonSet, load_balancers
from cloud.errors import CloudError
from cloud.load_balancers import LoadBalancers
from controllers.clock import CLOCK, Clock
from controllers.ingress_daemonset import rollout_annotations
from controllers.ingress_daemonset.actions import Target
from controllers.ingress_daemonset.clb.backends import NodeBackends
from controllers.ingress_daemonset.clb.cache import LoadBalancerCache
from controllers.ingress_daemonset.clb.planner import (
    Identity,
    Memory,
    Weighing,
    is_at_rest,
    plan_weights,
    summed_up,
    unhealthy,
)
from controllers.ingress_daemonset.clb.store import Unreadable, WeightStore
from controllers.ingress_daemonset.object_cache import ObjectCache
from controllers.ingress_daemonset.types import Workload
from controllers.workqueue import PENDING, Stopping, WorkQueue
from kube.errors import KubeError
from kube.types import key_of
from settings import CLBSettings

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

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True)
class Edges:
    """*cloud* connects, or raises a CloudError; *changed* gets the keys of IngressDaemonSets to reconcile."""

    cloud: Callable[[], LoadBalancers]
    store: WeightStore
    changed: Callable[[str], None]


class WeightReconciler:
    """*known* is what it finds out."""

    def __init__(
        self,
        edges: Edges,
        cache: ObjectCache,
        known: LoadBalancerCache,
        settings: Callable[[], CLBSettings],
        queue: WorkQueue,
        clock: Clock = CLOCK,
    ) -> None:
        self._edges, self._cache, self._known = edges, cache, known
        self._settings, self._queue, self._clock = settings, queue, clock

    def enqueue_all(self) -> None:
        used = {name for each in self._cache.list("IngressDaemonSet") for name in load_balancers(each)}
        for each in sorted(used.union(self._edges.store.load_balancers)):
            self._queue.add(each)

    def reconcile(self, load_balancer: str) -> float | None:
        """Seconds until it is read again; None while only nodes without pods are detached, or none. LeadershipLost."""
        detached, attached = self._wanted(load_balancer)
        try:
            memory = self._edges.store.memory(load_balancer)
            if detached or attached or memory:
                return self._weigh(load_balancer, memory, detached, attached)
        except Stopping:
            return None
        except (CloudError, KubeError, Unreadable) as error:
            self._failed(load_balancer, {**detached, **attached}, error)
            return PENDING
        self._found(load_balancer, {})
        return None

    def _weigh(
        self,
        load_balancer: str,
        memory: Memory,
        detached: Mapping[str, Identity],
        attached: Mapping[str, Identity],
    ) -> float | None:
        cloud, store = self._edges.cloud(), self._edges.store
        backends = cloud.backends(load_balancer)
        now = self._clock.now()
        others = [_identity(each) for each in self._cache.list("Node")]
        seen = Weighing(backends, memory, detached, attached, others, self._empty(load_balancer, memory))
        planned = plan_weights(seen, now)
        if planned.memory != memory:
            store.put(load_balancer, planned.memory)
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

    def _wanted(self, load_balancer: str) -> tuple[dict[str, Identity], dict[str, Identity]]:
        """The nodes to detach, and those that wait to be attached."""
        detached, attached = dict[str, Identity](), dict[str, Identity]()
        for held in self._cache.list("Deployment"):
            mark = rollout_annotations.on_deployment(held.metadata.annotations)
            if mark and self._uses(held, load_balancer):
                name = held.node
                node = self._cache.get(Target("Node", "", name))
                (attached if mark.attached else detached)[name] = _identity(node) if node else Identity()
        return detached, attached

    def _empty(self, load_balancer: str, memory: Memory) -> set[str]:
        """The nodes of *memory* without ingress pods, while any IngressDaemonSet uses *load_balancer*."""
        if not any(self._may_use(each, load_balancer) for each in self._users(load_balancer)):
            return set()
        deployments: list[Workload] = [*self._cache.list("Deployment")]
        serving = {each.node for each in deployments if each.status.available_replicas}
        return {each.node for each in memory.values()} - serving

    def _may_use(self, resource: IngressDaemonSet, load_balancer: str) -> bool:
        metadata = resource.metadata
        return not metadata.deletion_timestamp and self._settings().allows(load_balancer, metadata.namespace)

    def _uses(self, held: Workload, load_balancer: str) -> bool:
        """Whether its IngressDaemonSet detaches nodes from *load_balancer*, and may."""
        owner, namespace = held.metadata.controller, held.metadata.namespace
        if owner is None:
            return False
        resource = self._cache.get(Target("IngressDaemonSet", namespace, owner.name))
        if resource is None or not held.is_of(resource.metadata.uid):
            return False
        if not self._may_use(resource, load_balancer):
            return False
        weights = resource.spec.update_strategy.rolling_update.weights
        return weights is not None and load_balancer in weights.load_balancers

    def _found(
        self, load_balancer: str, nodes: Mapping[str, NodeBackends], detached: Collection[str] = ()
    ) -> None:
        self._queue.forget(load_balancer)
        FAILED.labels(load_balancer).set(0)
        off = sum(each.detached_since is not None for each in nodes.values())
        restoring = sum(not each.restored for name, each in nodes.items() if name not in detached)
        NODES.labels(load_balancer, "detaching").set(len(detached) - off)
        NODES.labels(load_balancer, "detached").set(off)
        NODES.labels(load_balancer, "restoring").set(restoring)
        self._publish(load_balancer, nodes)

    def _failed(self, load_balancer: str, wanted: Mapping[str, Identity], error: Exception) -> None:
        FAILED.labels(load_balancer).set(1)
        pause = self._queue.retry(load_balancer)
        log.warning("weights not reconciled", load_balancer=load_balancer, error=str(error), pause=pause)
        if not self._known.nodes(load_balancer):
            unknown = NodeBackends(load_balancer, error=f"cannot be read or written: {error}")
            self._publish(load_balancer, dict.fromkeys(wanted, unknown))

    def _publish(self, load_balancer: str, nodes: Mapping[str, NodeBackends]) -> None:
        if self._known.put(load_balancer, nodes):
            for each in self._users(load_balancer):
                self._edges.changed(key_of(each.metadata))

    def _users(self, load_balancer: str) -> Iterator[IngressDaemonSet]:
        found: list[IngressDaemonSet] = [*self._cache.list("IngressDaemonSet")]
        return (each for each in found if load_balancer in load_balancers(each))


def _identity(node: FollowedNode) -> Identity:
    instance = node.spec.provider_id.rpartition("/")[2]
    return Identity(instance if INSTANCE.fullmatch(instance) else "", node.address)
