"""Whether super nodes take one more pod: no more than is configured, and only where one of them has what it needs.

`SuperNodes` is the account of one decision. It begins with what is there, and each pod that is sent counts from then
on: for the limits, and on the node where it is expected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property, lru_cache
from itertools import chain
from typing import Any

import msgspec

from api.elasticity import REASON
from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.filters import (
    Request,
    Topology,
    is_asked_for,
    is_passing,
    looks_at_others,
    misses,
    node_affinity,
    node_selector,
    resources,
    volumes,
)
from controllers.elasticity.nodes import Gpus, WatchedNode, gpus_asked_for, tier_of, why_not_stray
from controllers.elasticity.patches import Action, Kind, as_burst, as_is, as_sent
from controllers.elasticity.pods import Pod, PodIndex, PodSpec, Unbound
from controllers.elasticity.rules import passing
from controllers.elasticity.snapshot import Snapshot
from kube.types import amount, rfc3339
from settings.elasticity import Budget, MaxSuperPods

TOTAL = ""
SETTING = "maxSuperPods."
"""How what is reached is called: in the reason of each pod that waits for it."""
STARTED = "has recently started pods like it"


def waits(pod: Pod) -> bool:
    """Whether one without a node said at its last decision that a limit is reached, for which it is not kept off."""
    return (pod.gated or not pod.tolerates) and SETTING in pod.metadata.annotations.get(REASON, "")


def counts(pod: Pod, super_nodes: Container[str]) -> bool:
    """Whether it is on a super node, where it is billed until it is gone, or may come there."""
    if pod.finished or pod.daemon:
        return False
    return pod.node_name in super_nodes or pod.may_come_to_super_nodes


@dataclass(frozen=True)
class Places:
    """By name, the places that a pod takes under *limits*, if it is on one of *super_nodes* or may come there."""

    limits: MaxSuperPods
    super_nodes: frozenset[str]

    def __call__(self, pod: Pod) -> Iterable[str]:
        return self.of(pod) if counts(pod, self.super_nodes) else ()

    def of(self, pod: Pod) -> Iterator[str]:
        """As if it were."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        yield from (TOTAL, namespace)
        for number, budget in enumerate(self.limits.budgets):
            if budget.concerns(namespace, labels):
                yield f"budget {number}"


Count = Callable[[Places, str, Sequence[Pod]], int]
"""How many pods take a place, but for some."""


def among(pods: Sequence[Pod]) -> Count:
    """Of *pods*, for one decision."""

    def count(places: Places, place: str, without: Sequence[Pod]) -> int:
        others = {pod.metadata.uid for pod in without}
        return sum(place in places(pod) for pod in pods if pod.metadata.uid not in others)

    return count


class Quota:
    """What the limits of *places* leave besides the pods of *count* and those *assumed* to come.

    They are counted for the first pod that needs a place, and the end of hours is looked for once: thousands may wait.
    """

    def __init__(self, places: Places, count: Count, now: datetime, assumed: Sequence[Pod] = ()) -> None:
        self._places, self._now, self._assumed = places, now, assumed
        self._there = cache(lambda place: count(places, place, assumed))
        self._end_of = cache(lambda number: places.limits.budgets[number].ends_at(now))
        self.refused: list[Pod] = []

    @cached_property
    def _coming(self) -> Counter[str]:
        return Counter(chain.from_iterable(map(self._places.of, self._assumed)))

    @cached_property
    def _in_force(self) -> Sequence[tuple[int, Budget]]:
        return [each for each in enumerate(self._places.limits.budgets) if each[1].holds_at(self._now)]

    def refusal(self, pod: Pod) -> str | None:
        """The limit that is reached, in the same words for as long as it is: they are written to pods that wait."""
        reached = self._reached(pod)
        if reached is None:
            return None
        self.refused.append(pod)
        return f"{SETTING}{reached}"

    def add(self, pod: Pod) -> None:
        self._coming.update(self._places.of(pod))

    def _reached(self, pod: Pod) -> str | None:
        limits, namespace = self._places.limits, pod.metadata.namespace
        if self._is_full(TOTAL, limits.total):
            return f"total limits pods on super nodes to {limits.total}"
        if self._is_full(namespace, limits.per_namespace):
            return f"perNamespace limits pods of {namespace} on super nodes to {limits.per_namespace}"
        for number, budget in self._in_force:
            concerns = budget.concerns(namespace, pod.metadata.labels)
            if concerns and self._is_full(f"budget {number}", budget.max_pods):
                reached = f"budgets limits {budget} on super nodes to {budget.max_pods}"
                ends_at = self._end_of(number)
                end = f"end at {rfc3339(ends_at)}" if ends_at else "do not end soon"
                return f"{reached}; its hours, {budget.times}, {end}" if budget.hours else reached
        return None

    def _is_full(self, place: str, most: int | None) -> bool:
        return most is not None and self._there(place) + self._coming[place] >= most


@dataclass(frozen=True)
class Objections:
    """What keeps a pod off super nodes: limits that it breaks, else that none of them takes it now."""

    rules: tuple[str, ...] = ()
    misfit: str | None = None
    outage: float | None = None
    """Seconds for which a super node has been in a state that is all it misses; None when there is no such node."""
    for_others: bool = False
    """Whether it asks for labels that none of the super nodes has."""


NO_OUTAGES: Mapping[str, float] = {}


class SuperNodes:
    """The account of the decision on *snapshot*; *bound* to super nodes is a pod that may run nowhere else.

    *pods* are all that are known, and *count* counts them; *assumed* are actions that may bring more to super nodes,
    read before them.
    *outages* says by node for how many seconds it has been in a state that passes; *to_look_up* are pods whose volumes
    must be read first.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        pods: PodIndex,
        eligibility: Eligibility,
        count: Count,
        assumed: Sequence[Action] = (),
        outages: Mapping[str, float] = NO_OUTAGES,
    ) -> None:
        self._nodes, self._settings = snapshot.cluster.nodes, snapshot.cluster.settings
        self._pods, self._eligibility, self._assumed, self._outages = pods, eligibility, assumed, outages
        self._avoided = snapshot.avoided
        places = Places(self._settings.max_super_pods, self._nodes.names)
        self.quota = Quota(places, count, snapshot.now, [action.pod for action in assumed])
        self.to_look_up: list[Pod] = []
        self._added: list[tuple[Pod, bool]] = []
        self._asked: dict[bytes, bool] = {}

    def objections(self, pod: Pod, *, bound: bool) -> Objections | None:
        """None while that is not known."""
        rules = self._eligibility.violations(pod)
        if rules is None:
            self.to_look_up.append(pod)
            return None
        if rules := (*passing(pod.metadata, self._settings.excluded_namespaces), *rules):
            return Objections(rules)
        request, gpus = self._request(pod, bound=bound), self.gpus(pod)
        if misfit := self._misfit(request):
            names = (node.metadata.name for node in self._nodes.super if is_passing(request, node))
            outage = min((self._outages.get(name, 0.0) for name in names), default=None)
            for_others = all(not is_asked_for(request, node) for node in self._nodes.super)
            return Objections(misfit=misfit, outage=outage, for_others=for_others and bool(self._nodes.super))
        if gpus:
            # A super node that is not for GPUs, and would take it.
            lasting = (node_selector, node_affinity, volumes, resources)
            for node in self._nodes.super:
                if not node.for_gpus and not misses(request, node, lasting):
                    return Objections((why_not_stray(gpus, node),))
        return Objections()

    def add(self, pod: Pod, *, bound: bool) -> None:
        """From now on the pod counts as on its way."""
        self.quota.add(pod)
        self._added.append((pod, bound))
        self._repelled = self._repelled or bool(pod.repels)

    def first_tier(self, pod: Pod) -> int | None:
        """The first one with room for a pod that would take this one alone; None where all nodes are of one tier."""
        if len({tier_of(node) for node in self._nodes.super}) < 2:
            return None
        suitable, free = self._suitable(self._request(pod, bound=False)), []
        for node in suitable:
            # By the number of its pods: a subnet has so many addresses.
            most = node.status.allocatable.get("pods")
            if most is None or len(self._pods.holding(node.metadata.name)) < amount(most):
                free.append(node)
        return min(map(tier_of, free or suitable), default=None)

    def leaving(self, node: str) -> list[Pod]:
        """The pods that terminate on that node, a local one or not."""
        return [pod for pod in self._pods.holding(node) if not pod.active]

    def is_asked_for(self, pod: Pod) -> bool:
        """Whether the pod asks for super nodes: by labels or name, one of them suits it, and no other node."""
        request = Request(pod, _spec(pod.unbound, as_is, None))
        asks = request.spec
        if not asks.node_selector and asks.required is None:
            return False
        cached = msgspec.json.encode((asks.node_selector, asks.required))
        if cached not in self._asked:
            of_super, of_local = (
                any(is_asked_for(request, node) for node in nodes)
                for nodes in (self._nodes.super, self._nodes.local)
            )
            self._asked[cached] = of_super and not of_local
        return self._asked[cached]

    def gpus(self, pod: Pod) -> Gpus:
        if not self._settings.gpus:
            return None
        return gpus_asked_for(pod.metadata, _spec(pod.unbound, as_is, None))

    def _request(self, pod: Pod, *, bound: bool) -> Request:
        """The pod as it would be on super nodes."""
        spec = _spec(pod.unbound, as_sent if bound else as_burst, self.gpus(pod))
        return Request(pod, spec, self._eligibility.reach(pod))

    def _misfit(self, request: Request) -> str | None:
        """Why no super node takes the pod."""
        if not self._nodes.super:
            return "there is no super node"
        missed = {node.metadata.name: self._misses(request, node) for node in self._nodes.super}
        suitable = [node for node in self._nodes.super if not missed[node.metadata.name]]
        # For most pods others do not matter, and are not looked at.
        if suitable and (looks_at_others(request) or self._repelled):
            topology = self._topology
            for pod, bound in self._added:
                self._expect(topology, pod, bound=bound)
            self._added = []
            missed = {node.metadata.name: list(topology.misses(request, node)) for node in suitable}
        if not all(missed.values()):
            return None
        found = dict.fromkeys(chain.from_iterable(missed.values()))
        said = "; ".join(found)
        return f"no super node {said}" if len(found) == 1 else f"no super node does all: {said}"

    def _suitable(self, request: Request) -> list[WatchedNode]:
        """Super nodes that take the pod by themselves, whatever other pods there are."""
        return [node for node in self._nodes.super if not self._misses(request, node)]

    def _misses(self, request: Request, node: WatchedNode) -> list[str]:
        return [STARTED] if node.metadata.name in self._avoided else misses(request, node)

    @cached_property
    def _repelled(self) -> bool:
        """Whether pods that are there, or come, have anti-affinity: it may be against any pod."""
        names = ("", *(node.metadata.name for node in self._nodes.super))
        is_there = any((self._pods.repelling(), *map(self._pods.repelling_on, names)))
        return is_there or any(action.pod.repels for action in self._assumed)

    @cached_property
    def _topology(self) -> Topology:
        """With pods without a node that may get a super node: allowed to already, or assumed to be."""
        topology = Topology((*self._nodes.super, *self._nodes.local), self._nodes.super, self._pods)
        coming = {pod.metadata.uid: (pod, False) for pod in self._pods.sent()}
        coming |= {action.uid: (action.pod, action.kind is Kind.SUPER) for action in self._assumed}
        for pod, bound in coming.values():
            self._expect(topology, pod, bound=bound)
        return topology

    def _expect(self, topology: Topology, pod: Pod, *, bound: bool) -> None:
        """On the first node that takes it."""
        request = self._request(pod, bound=bound)
        suitable = self._suitable(request)
        free = (node for node in suitable if not any(topology.misses(request, node)))
        if expected := next(free, suitable[0] if suitable else None):
            topology.add(pod, expected.metadata.name)


@lru_cache(maxsize=512)
def _spec(unbound: Unbound, change: Callable[[Pod, Gpus], dict[str, Any]], gpus: Gpus) -> PodSpec:
    """Of a pod as it is or would be; decoded once for each version of it."""
    return msgspec.convert(change(Pod(unbound=unbound), gpus), PodSpec)
