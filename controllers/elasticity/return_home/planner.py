"""Which pod on a super node may be replaced by a local one, where there is room for it, and what became of an eviction.

The room is an estimate, by what is requested of each node: it is the scheduler that decides. What it counts and this
does not: volumes per node, and resizes in progress. A wrong guess costs one eviction, and a pause
that grows.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

import msgspec
from msgspec import structs

from api.elasticity import LOCAL_REPLICAS, RETURN_HOME, SUPER, never_returns
from controllers.elasticity.filters import Request, Topology, misses
from controllers.elasticity.nodes import Nodes
from controllers.elasticity.pods import Pod, PodIndex, born
from controllers.elasticity.snapshot import Location, Policy, Snapshot
from kube.types import Moment, Value, amount, key_of

MOST = 5
"""Failures in a row after which no pod of that revision is evicted any more."""
LONGEST = 86400.0
PODS = "pods"
"""The resource of which each pod takes one."""


@dataclass(frozen=True)
class Choice:
    """The pod that returns first, if any may, and *why* not now."""

    pod: Pod | None
    why: str | None = None


def choose(snapshot: Snapshot, members: Sequence[Pod], bursts: Sequence[Pod], after: float) -> Choice:
    """Of *bursts*, pods of one owner and revision that local nodes had no room for; *after* is in seconds.

    *members* are the active pods of their workload.
    """
    local = snapshot.siblings[Location.LOCAL]
    policies = [(pod, snapshot.policy(pod)) for pod in bursts]
    objections = [never_returns(pod.metadata) or _beyond(policy, local) for pod, policy in policies]
    free = [each for each, why in zip(policies, objections, strict=True) if not why]
    if not free:
        return Choice(None, objections[0])
    # The highest ordinal first, as in a rolling update, and the youngest.
    first, _ = max(free, key=lambda each: (each[1].ordinal or 0, born(each[0])))
    why = unavailable(members)
    if not why and len(members) == 1 and first.metadata.annotations.get(RETURN_HOME) != "true":
        why = f'it is the only pod of its workload; {RETURN_HOME}: "true" allows the gap'
    # A pod that came a moment ago says that there was no room then. It is known, too, after a crash.
    new = (pod.metadata.name for pod in bursts if snapshot.now.timestamp() - born(pod)[0] < after)
    if not why and (name := next(new, "")):
        why = f"{name} came to a super node less than {after:g} s ago"
    return Choice(first, why)


def unavailable(members: Sequence[Pod]) -> str | None:
    """Why a workload can miss none of its pods now."""
    for pod in members:
        if not pod.node_name:
            return f"{pod.metadata.name} has no node yet"
        if not pod.ready:
            return f"{pod.metadata.name} is not ready"
    return None


def _beyond(policy: Policy, local: int) -> str | None:
    """Its replacement would be placed on a super node."""
    before = local if policy.ordinal is None else policy.ordinal
    if policy.replicas is None or before < policy.replicas:
        return None
    return f"{LOCAL_REPLICAS} is {policy.replicas}, and {before} come before it: pods beyond that belong on super nodes"


SETTLE = 30.0
"""Seconds within which an eviction shows."""
GONE = 60.0
"""Seconds within which a replacement is created once the pod is gone; without one, the workload was scaled in or
updated. A StatefulSet creates none before."""
STALLED = 600.0
"""Seconds for which a replacement may be pending or unready before its place is given to another workload."""


class Outcome(StrEnum):
    LOCAL = "local"
    SUPER = "super"
    STALLED = "stalled"
    ABANDONED = "abandoned"
    """Its workload has fewer pods now, or none."""
    KEPT = "kept"
    """The eviction did not take place."""


FAILURES = (Outcome.SUPER, Outcome.STALLED)


class Failed(Value, frozen=True):
    """So many times in a row; the next eviction of the workload may be at that time."""

    times: int
    until: Moment
    workload: str = ""

    @property
    def is_final(self) -> bool:
        return self.times >= MOST


def once_more(before: Failed | None, pod: Pod, after: float, now: datetime) -> Failed:
    """The pause is twice as long with each failure in a row, a day at most."""
    times, at, owner = (before.times if before else 0) + 1, pod.metadata, pod.metadata.controller
    pause = min(after * 2.0 ** min(times, 64), LONGEST)
    return Failed(
        times, now + timedelta(seconds=pause), f"{at.namespace}/{owner.name}" if owner else key_of(at)
    )


@dataclass(frozen=True)
class Return:
    """*siblings* are the uids of the workload's pods at the eviction of *request*'s, at that monotonic time.

    *seen* is when that pod was last there, if only to end. *before* are the failures in a row that preceded it; *doubt*
    is why it is not known whether it took place.
    """

    request: Request
    siblings: frozenset[str]
    at: float
    seen: float
    before: Failed | None = None
    doubt: str = ""

    @property
    def replacement(self) -> Request:
        """What it asks for; the evicted pod may be on its node, or gone, and does not count."""
        return replace(self.request, pod=structs.replace(self.request.pod, node_name=""))

    def replacements(self, members: Iterable[Pod]) -> list[Pod]:
        """Those that the workload got since then."""
        return [pod for pod in members if pod.metadata.uid not in self.siblings]


def outcome(begun: Return, members: Sequence[Pod], super_nodes: Container[str], now: float) -> Outcome | None:
    """None while that is open; *members* are the workload's *now*."""
    new = begun.replacements(members)
    there = [pod for pod in new if pod.node_name in super_nodes]
    # Beside a pod that may be local, those beyond LOCAL_REPLICAS come from a scale-out.
    if there and (len(there) == len(new) or any(pod.placed != SUPER for pod in there)):
        return Outcome.SUPER
    if any(pod.metadata.uid == begun.request.pod.metadata.uid for pod in members):
        return Outcome.KEPT if now - begun.at >= SETTLE else None
    if not unavailable(members):
        if members and len(members) >= len(begun.siblings):
            return Outcome.LOCAL
        if now - begun.seen >= GONE:
            return Outcome.ABANDONED
    return Outcome.STALLED if now - begun.at >= STALLED else None


class LocalRoom:
    """Of *nodes*' local ones, with the pods on them; what is reserved counts as taken. Built for one look."""

    def __init__(self, nodes: Nodes, pods: PodIndex) -> None:
        self._nodes, self._topology = nodes.local, Topology((*nodes.local, *nodes.super), nodes.local, pods)
        self._free: dict[str, dict[str, Decimal]] = {}
        """By node, what it has left of each resource; less than nothing where it was overcommitted."""
        for node in nodes.local:
            name, allocatable = node.metadata.name, node.status.allocatable
            self._free[name] = {resource: amount(held) for resource, held in allocatable.items()}
            for pod in pods.holding(name):
                self._take(name, pod.requests)
        self._hopeless: set[bytes] = set()
        """What asks as these do has no node, whatever other pods there are: room only becomes less."""

    def node_for(self, request: Request) -> str:
        """The name of a node that takes the pod; nothing when there is none."""
        spec, wanted = request.spec, {**request.resources, PODS: Decimal(1)}
        by_itself = sorted(wanted.items()), spec.node_selector, spec.required, spec.tolerations
        shape = msgspec.json.encode((*by_itself, repr(request.volumes)))
        if shape in self._hopeless:
            return ""
        is_hopeless = True
        # In the order of cost: where pods are on super nodes local nodes are mostly full, and most ask for little.
        for node in self._nodes:
            free = self._free[node.metadata.name]
            has_room = all(free.get(name, Decimal()) >= needed for name, needed in wanted.items() if needed)
            if has_room and not misses(request, node):
                is_hopeless = False
                if not any(self._topology.misses(request, node)):
                    return node.metadata.name
        if is_hopeless:
            self._hopeless.add(shape)
        return ""

    def reserve(self, request: Request) -> bool:
        """Whether a node takes the pod: it is on its way to the first one that does."""
        if name := self.node_for(request):
            self._take(name, request.resources)
            self._topology.add(request.pod, name)
        return bool(name)

    def _take(self, name: str, requests: Mapping[str, Decimal]) -> None:
        free = self._free[name]
        for resource, wanted in {**requests, PODS: Decimal(1)}.items():
            free[resource] = free.get(resource, Decimal()) - wanted
