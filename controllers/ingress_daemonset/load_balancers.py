"""The backends of nodes at a load balancer: whether it sends a node nothing more, and the weights that it should have.

A weight is remembered before 0 is written over it, and forgotten when it was read back after no such write of ours can
arrive any more: the answer to one may be lost, and the process that sent it may have ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from msgspec.structs import replace

from cloud.types import Backend
from controllers.ingress_daemonset.detachment import NodeBackends
from kube.types import Moment, Value

LATE = timedelta(seconds=120)
"""A write arrives so late at most: more than LONGEST_CALL, and the task that it begins."""
LONGEST_CALL = 15.0
"""Seconds that a call takes at most, with all its attempts."""
AT_ONCE = 500
"""Weights that one plan changes, so that no call for them comes later than that."""
MOST = 1500
"""Weights that are remembered, as many as a ConfigMap can have: other nodes wait until some have theirs again."""


class FormerWeight(Value, frozen=True):
    """The *weight* of a backend before we wrote 0, last at *at*; *node* is whose backend it is.

    *owner* is the uid of the IngressDaemonSet for which we did, *restored* when we last wrote *weight* again.
    """

    node: str
    weight: int
    at: Moment
    restored: Moment | None = None
    owner: str = ""

    def may_fall(self, now: datetime) -> bool:
        """Whether a write of 0 may still arrive."""
        return now - self.at <= LATE

    def may_rise(self, now: datetime) -> bool:
        """Whether a write of the former weight may still arrive."""
        return self.restored is not None and now - self.restored <= LATE


FormerWeights = Mapping[str, FormerWeight]
"""By the keys of backends."""

Identity = tuple[str, ...]
"""By which a node's backends are recognized: its instance and InternalIPs."""


@dataclass(frozen=True)
class BalancerSnapshot:
    """What a load balancer has, and which of the *nodes* should get nothing from it; a detached one may be gone.

    *detached* has the uid of an IngressDaemonSet for each, *attached* ones wait for their former weights. Those that
    are not *serving* have no pods; None is as if all were.
    """

    backends: Sequence[Backend]
    memory: FormerWeights
    nodes: Mapping[str, Identity]
    detached: Mapping[str, str]
    attached: Collection[str] = ()
    serving: Collection[str] | None = None

    def is_restorable(self, backend: Backend) -> bool:
        """Whether it waits for its former weight."""
        is_serving = self.serving is None or self.node_of(backend) in self.serving
        return backend.key in self.memory and not backend.weight and is_serving

    def node_of(self, backend: Backend) -> str:
        """The node whose backend it is, under its present name, or was when it is gone; empty for others'."""
        found = self._by_identity.get(backend.instance or backend.address)
        return found or (known.node if (known := self.memory.get(backend.key)) else "")

    def knows(self, node: str) -> bool:
        """Whether its backends can be recognized."""
        return node in self._by_identity.values() or any(each.node == node for each in self.memory.values())

    @property
    def has_nodes(self) -> bool:
        """Whether it sends traffic to nodes, and not only to pods or to a target group."""
        found = {name for each in self.backends for name in (each.instance, each.address)}
        return not found.isdisjoint(self._by_identity)

    @cached_property
    def by_node(self) -> Mapping[str, Sequence[Backend]]:
        found: dict[str, list[Backend]] = {}
        for each in self.backends:
            found.setdefault(self.node_of(each), []).append(each)
        return found

    @cached_property
    def _by_identity(self) -> Mapping[str, str]:
        """Of two nodes that are one instance, the one that is to be detached or attached, or has pods."""
        ordered = (*self.nodes, *(self.serving or ()), *self.attached, *self.detached)
        names = (each for each in ordered if each in self.nodes)
        return {key: name for name in names for key in self.nodes[name] if key}


@dataclass(frozen=True)
class WeightPlan:
    """Store *memory* where it differs, then write *weights*."""

    memory: FormerWeights
    weights: Mapping[Backend, int]


def plan_weights(seen: BalancerSnapshot, now: datetime) -> WeightPlan:
    memory, weights = dict(seen.memory), dict[Backend, int]()
    for each in seen.backends:
        known, node = seen.memory.get(each.key), seen.node_of(each)
        if node in seen.detached:
            if each.weight and len(weights) < AT_ONCE and (known or len(memory) < MOST):
                before = known.restored if known else None
                owner = seen.detached[node]
                memory[each.key], weights[each] = FormerWeight(node, each.weight, now, before, owner), 0
        elif known and seen.is_restorable(each) and len(weights) < AT_ONCE:
            memory[each.key], weights[each] = replace(known, restored=now), known.weight
        elif known and each.weight and not known.may_fall(now):
            del memory[each.key]
    for key in memory.keys() - {each.key for each in seen.backends}:
        # It was deregistered; when it is registered again, it has the weight that it is given then.
        if not memory[key].may_fall(now):
            del memory[key]
    return WeightPlan(memory, weights)


def is_at_rest(seen: BalancerSnapshot, memory: FormerWeights, now: datetime) -> bool:
    """Whether *memory* is only of nodes that have no pods, and no write may still arrive."""
    return all(
        seen.serving is not None
        and each.node not in seen.serving
        and not (each.may_fall(now) or each.may_rise(now))
        for each in memory.values()
    )


def summed_up(
    load_balancer: str, seen: BalancerSnapshot, since: Mapping[str, datetime], now: datetime
) -> Iterator[tuple[str, NodeBackends]]:
    """For each node that is not as it was before; *since* says since when their backends have had weight 0."""
    for name in seen.detached:
        if not seen.has_nodes:
            yield name, NodeBackends(load_balancer, error="has no backend that is a node of the cluster")
        elif not seen.knows(name):
            yield (
                name,
                NodeBackends(load_balancer, error="has backends that cannot be matched: the node is gone"),
            )
        else:
            mine = [(each.weight, seen.memory.get(each.key)) for each in seen.by_node.get(name, ())]
            is_off = not any(weight or (known and known.may_rise(now)) for weight, known in mine)
            yield name, NodeBackends(load_balancer, since.get(name, now) if is_off else None)
    waiting = {seen.node_of(each) for each in seen.backends if seen.is_restorable(each)}
    for name in {*seen.attached, *waiting}.difference(seen.detached):
        yield name, NodeBackends(load_balancer, restored=name not in waiting)


def unhealthy(node: str, seen: BalancerSnapshot, healthy: Mapping[str, bool]) -> int:
    """How many of the node's backends with a weight get no traffic yet."""
    mine = seen.by_node.get(node, ())
    return sum(not healthy.get(each.key, True) for each in mine if each.weight)
