"""Whether super nodes take one more pod: no more than is configured, and only where one of them has what it needs.

`SuperNodes` is the account of one decision. It begins with what is there, and each pod that is sent counts from then
on: for the limits, and on the node where it is expected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

import msgspec

from api.elasticity import REASON
from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.filters import (
    Reach,
    Request,
    Topology,
    is_asked_for,
    is_passing,
    misses,
    node_affinity,
    node_selector,
    resources,
    volumes,
)
from controllers.elasticity.gpus import Gpus, asked_for, hint, is_for_gpus, no_way
from controllers.elasticity.nodes import Nodes, WatchedNode
from controllers.elasticity.patches import Action, Kind, as_burst, as_sent
from controllers.elasticity.pods import Pod, PodIndex, PodSpec, Unbound, spec_of
from controllers.elasticity.tiers import tier_of
from kube.quantities import amount
from kube.types import rfc3339
from settings.elasticity import Budget, MaxSuperPods

SETTING = "maxSuperPods."
"""How what is reached is called: in the reason of each pod that waits for it."""
NONE_THERE = "there is no super node"


def waits(pod: Pod) -> bool:
    """Whether it has no node, and said at its last decision that a limit is reached."""
    return not pod.node_name and SETTING in pod.metadata.annotations.get(REASON, "")


def counts(pod: Pod, super_nodes: Container[str]) -> bool:
    """Whether it is on a super node, where it is billed until it is gone, or may come there."""
    if pod.finished or pod.daemon:
        return False
    return pod.node_name in super_nodes or pod.may_come_to_super_nodes


def is_under(budget: Budget, pod: Pod) -> bool:
    return budget.concerns(pod.metadata.namespace, pod.metadata.labels)


def counted(pods: PodIndex, super_nodes: Iterable[str], assumed: Iterable[Action] = ()) -> Iterator[Pod]:
    """Those that count, each once; *assumed* are actions that may bring more, read before the pods."""
    more = {action.uid: action.pod for action in assumed}
    for pod in chain(pods.sent(), *map(pods.holding, super_nodes)):
        if not pod.daemon:
            more.pop(pod.metadata.uid, None)
            yield pod
    yield from more.values()


@dataclass
class _Used:
    """By the pods that are *there*, and more."""

    budget: Budget
    there: Sequence[Pod]

    @cached_property
    def taken(self) -> int:
        return sum(is_under(self.budget, pod) for pod in self.there)


class Quota:
    """What *limits* leave besides the pods that are *there*, which are not read where nothing is limited."""

    def __init__(self, limits: MaxSuperPods, there: Iterable[Pod], now: datetime) -> None:
        self._limits, self._now = limits, now
        pods = [*there] if limits.is_limited else []
        self._taken = Counter(pod.metadata.namespace for pod in pods)
        self._budgets = [_Used(budget, pods) for budget in limits.budgets if budget.holds_at(now)]
        self.was_short = False
        self._ends: list[datetime] = []

    @property
    def opens_in(self) -> float | None:
        """Seconds until the first budget that had no room holds no more; None where no hours end."""
        return (min(self._ends) - self._now).total_seconds() if self._ends else None

    def refusal(self, pod: Pod) -> str | None:
        """The limit that is reached, in the same words for as long as it is: they are written to pods that wait."""
        refusal = self._total_reached(pod.metadata.namespace) or self._budget_reached(pod)
        self.was_short |= refusal is not None
        return refusal

    def add(self, pod: Pod) -> None:
        self._taken[pod.metadata.namespace] += 1
        for used in self._concerned(pod):
            used.taken += 1

    def _total_reached(self, namespace: str) -> str | None:
        total, most = self._limits.total, self._limits.per_namespace
        if total and self._taken.total() >= total:
            return f"{SETTING}total is {total}, and as many pods are on super nodes"
        if most and self._taken[namespace] >= most:
            return f"{SETTING}perNamespace is {most}, and as many pods of {namespace} are on super nodes"
        return None

    def _budget_reached(self, pod: Pod) -> str | None:
        for used in self._concerned(pod):
            if used.taken >= (budget := used.budget).max_pods:
                return (
                    f"{SETTING}budgets allows {budget.max_pods} {budget} on super nodes{self._until(budget)}"
                )
        return None

    def _concerned(self, pod: Pod) -> list[_Used]:
        return [used for used in self._budgets if is_under(used.budget, pod)]

    def _until(self, budget: Budget) -> str:
        if not budget.hours:
            return ""
        if not (ends_at := budget.ends_at(self._now)):
            return f"; its hours, {budget.times}, do not end soon"
        self._ends.append(ends_at)
        return f"; its hours, {budget.times}, end at {rfc3339(ends_at)}"


class Fleet:
    """Built for one decision. *assumed* are actions that may bring a pod to one of the nodes, read before the pods.

    *gpus*: some nodes are for pods that ask for GPUs.
    """

    def __init__(
        self,
        nodes: Nodes,
        pods: PodIndex,
        assumed: Sequence[Action] = (),
        *,
        gpus: bool = False,
    ) -> None:
        self._nodes, self._pods, self._assumed, self._gpus = nodes, pods, assumed, gpus
        self._added: list[Request] = []
        self._asked: dict[bytes, bool] = {}

    @cached_property
    def _topology(self) -> Topology:
        topology = Topology((*self._nodes.super, *self._nodes.local), self._nodes.super, self._pods)
        for request in self._on_the_way():
            self._expect(topology, request)
        return topology

    @cached_property
    def _repelling(self) -> bool:
        return bool(self._pods.repelling()) or any(action.pod.repels for action in self._assumed)

    def why_not(self, request: Request) -> str | None:
        """None when a super node takes the pod."""
        if not self._nodes.super:
            return NONE_THERE
        found, missed = self.fitting(request)
        return None if found else _sentence(missed)

    def request(self, pod: Pod, *, bound: bool, volumes: tuple[Reach, ...] = ()) -> Request:
        """The pod as it would be on super nodes; *bound*: and nowhere else."""
        return _request(pod, as_sent if bound else as_burst, volumes, self.gpus(pod)[0])

    def gpus(self, pod: Pod) -> tuple[Gpus, str]:
        """Whether the pod asks for GPUs, if that matters, and by what."""
        if not self._gpus:
            return Gpus.UNUSED, ""
        asked = asked_for(pod.metadata, _request(pod, as_is).spec)
        return (Gpus.WANTED if asked else Gpus.UNWANTED), asked

    def stray(self, request: Request) -> WatchedNode | None:
        """A super node that is not for GPUs, and would take a pod that asks for GPUs."""
        others = (node for node in self._nodes.super if not is_for_gpus(node))
        lasting = (node_selector, node_affinity, volumes, resources)
        return next((node for node in others if not misses(request, node, lasting)), None)

    def passing(self, request: Request) -> list[str]:
        """The names of super nodes that nothing but their state keeps the pod off."""
        return [node.metadata.name for node in self._nodes.super if is_passing(request, node)]

    def first_tier(self, request: Request) -> int | None:
        """The first one with room for a pod that would take this one alone; None where all nodes are of one tier."""
        if len({tier_of(node) for node in self._nodes.super}) < 2:
            return None
        suitable = [node for node in self._nodes.super if not misses(request, node)]
        free = [node for node in suitable if not self._is_full(node)]
        return min(map(tier_of, free or suitable), default=None)

    def _is_full(self, node: WatchedNode) -> bool:
        """By the number of its pods: a subnet has so many addresses."""
        most = node.status.allocatable.get("pods")
        return most is not None and len(self._pods.holding(node.metadata.name)) >= amount(most)

    def add(self, request: Request) -> None:
        """From now on the pod counts as on its way."""
        self._added.append(request)

    def is_asked_for(self, request: Request) -> bool:
        """Whether the pod asks for super nodes: by labels or name, one of them suits it, and no other node."""
        asks = request.spec
        if not asks.node_selector and asks.required is None:
            return False
        cached = msgspec.json.encode((asks.node_selector, asks.required))
        if cached not in self._asked:
            self._asked[cached] = any(is_asked_for(request, node) for node in self._nodes.super) and not any(
                is_asked_for(request, node) for node in self._nodes.local
            )
        return self._asked[cached]

    def fitting(self, request: Request) -> tuple[Sequence[WatchedNode], list[str]]:
        """Nodes that take it; else what they miss."""
        missed = {node.metadata.name: misses(request, node) for node in self._nodes.super}
        suitable = [node for node in self._nodes.super if not missed[node.metadata.name]]
        if not suitable:
            return (), _distinct(missed.values())
        if not self.is_constrained(request):
            return suitable, []
        self._settle()
        crowded = {node.metadata.name: list(self._topology.misses(request, node)) for node in suitable}
        free = [node for node in suitable if not crowded[node.metadata.name]]
        return free, _distinct(crowded.values())

    def is_constrained(self, request: Request) -> bool:
        """Whether other pods matter: for most pods they do not, and are not looked at."""
        asks = request.spec
        own = asks.host_ports or asks.repels or asks.attracts or asks.spread
        return bool(own) or self._repelling or any(added.pod.repels for added in self._added)

    def _on_the_way(self) -> list[Request]:
        """Pods without a node that may get a super node: allowed to already, or assumed to be."""
        pods = {pod.metadata.uid: (pod, False) for pod in self._pods.sent()}
        pods |= {action.uid: (action.pod, action.kind is Kind.SUPER) for action in self._assumed}
        return [self.request(pod, bound=bound) for pod, bound in pods.values()]

    def _settle(self) -> None:
        added, self._added = self._added, []
        for request in added:
            self._expect(self._topology, request)

    def _expect(self, topology: Topology, request: Request) -> None:
        """Expect the pod on the first node that takes it."""
        suitable = [node for node in self._nodes.super if not misses(request, node)]
        free = (node for node in suitable if not any(topology.misses(request, node)))
        if expected := next(free, suitable[0] if suitable else None):
            topology.add(request.pod, expected.metadata.name)


@dataclass(frozen=True)
class Objections:
    """All that keeps a pod off super nodes: limits that it breaks, and that none of them takes it now."""

    rules: tuple[str, ...] = ()
    misfit: str | None = None
    outage: float | None = None
    """Seconds for which a super node has been in a state that is all it misses; None when there is no such node."""


NO_OUTAGES: Mapping[str, float] = {}


class SuperNodes:
    """The account of one decision; *bound* to super nodes is a pod that may run nowhere else.

    *outages* says by node for how many seconds it has been in a state that passes; *to_look_up* are pods whose volumes
    must be read first.
    """

    def __init__(
        self, fleet: Fleet, quota: Quota, eligibility: Eligibility, outages: Mapping[str, float] = NO_OUTAGES
    ) -> None:
        self._fleet, self.quota, self._eligibility, self._outages = fleet, quota, eligibility, outages
        self.to_look_up: list[Pod] = []

    def objections(self, pod: Pod, *, bound: bool) -> Objections | None:
        """None while that is not known."""
        rules = self._eligibility.violations(pod)
        if rules is None:
            self.to_look_up.append(pod)
            return None
        if rules:
            return Objections(rules)
        request, (gpus, asked) = self._request(pod, bound=bound), self._fleet.gpus(pod)
        if misfit := self._fleet.why_not(request):
            outages = (self._outages.get(name, 0.0) for name in self._fleet.passing(request))
            misfit += "" if gpus is Gpus.UNUSED else hint(gpus, asked)
            return Objections(misfit=misfit, outage=min(outages, default=None))
        if gpus is Gpus.WANTED and (stray := self._fleet.stray(request)):
            return Objections((no_way(asked, stray),))
        return Objections()

    def refusal(self, pod: Pod) -> str | None:
        """The limit that is reached."""
        return self.quota.refusal(pod)

    def add(self, pod: Pod, *, bound: bool) -> None:
        """From now on the pod counts as on its way."""
        self.quota.add(pod)
        self._fleet.add(self._request(pod, bound=bound))

    def first_tier(self, pod: Pod, *, bound: bool) -> int | None:
        """Which of several tiers it goes to first."""
        return self._fleet.first_tier(self._request(pod, bound=bound))

    def is_asked_for(self, pod: Pod) -> bool:
        return self._fleet.is_asked_for(_request(pod, as_is))

    def gpus(self, pod: Pod) -> Gpus:
        return self._fleet.gpus(pod)[0]

    def _request(self, pod: Pod, *, bound: bool) -> Request:
        return self._fleet.request(pod, bound=bound, volumes=self._eligibility.reach(pod))


Change = Callable[[Pod, Gpus], dict[str, Any]]
"""Makes of a pod the spec that it would have, raw."""


def as_is(pod: Pod, _: Gpus) -> dict[str, Any]:
    return spec_of(pod)


def _request(pod: Pod, change: Change, volumes: tuple[Reach, ...] = (), gpus: Gpus = Gpus.UNUSED) -> Request:
    return Request(pod, _spec(pod.unbound or Unbound(), change, gpus), volumes)


@lru_cache(maxsize=512)
def _spec(unbound: Unbound, change: Change, gpus: Gpus) -> PodSpec:
    """Of a pod as it is or would be; decoded once for each version of it."""
    return msgspec.convert(change(Pod(unbound=unbound), gpus), PodSpec)


def _distinct(missed: Iterable[list[str]]) -> list[str]:
    return list(dict.fromkeys(miss for of_node in missed for miss in of_node))


def _sentence(missed: Sequence[str]) -> str:
    return (
        f"no super node {missed[0]}" if len(missed) == 1 else f"no super node does all: {'; '.join(missed)}"
    )
