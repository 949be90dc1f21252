"""Whether a super node takes a pod, with all pods that are on super nodes and on their way there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.filters import (
    Lookup,
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
from controllers.elasticity.nodes import Nodes, Outages, WatchedNode
from controllers.elasticity.patches import Action, Kind, as_burst, as_sent
from controllers.elasticity.planner import Objections
from controllers.elasticity.pods import Pod, PodSpec, Unbound, spec_of
from controllers.elasticity.quota import Room
from controllers.elasticity.tiers import tier_of
from kube.quantities import amount

NONE_THERE = "there is no super node"


class Fleet:
    """Built for one decision. *assumed* are actions that may bring a pod to one of the nodes; most need no look.

    *gpus*: some nodes are for pods that ask for GPUs.
    """

    def __init__(
        self,
        nodes: Nodes,
        having: Lookup,
        assumed: Callable[[], Sequence[Action]] = lambda: (),
        *,
        gpus: bool = False,
    ) -> None:
        self._nodes, self._having, self._read_assumed = nodes, having, assumed
        self._gpus = gpus
        self._taken: list[Request] = []
        self._asked: dict[bytes, bool] = {}

    @cached_property
    def _assumed(self) -> Sequence[Action]:
        return self._read_assumed()

    @cached_property
    def _topology(self) -> Topology:
        topology = Topology((*self._nodes.super, *self._nodes.local), self._nodes.super, self._having)
        for request in self._on_the_way():
            self._expect(topology, request)
        return topology

    @cached_property
    def _repelling(self) -> bool:
        return bool(self._having("repels")) or any(each.pod.repels for each in self._assumed)

    def why_not(self, request: Request) -> str:
        """Nothing when a super node takes the pod."""
        if not self._nodes.super:
            return NONE_THERE
        found, missed = self.fitting(request)
        return "" if found else _sentence(missed)

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
        return most is not None and len(self._having(f"held {node.metadata.name}")) >= amount(most)

    def take(self, request: Request) -> None:
        """From now on the pod counts as on its way."""
        self._taken.append(request)

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
        return bool(own) or self._repelling or any(each.pod.repels for each in self._taken)

    def _on_the_way(self) -> list[Request]:
        """Pods without a node that may get a super node: allowed to already, or assumed to be."""
        pods = {pod.metadata.uid: (pod, False) for pod in self._having("sent")}
        pods |= {each.uid: (each.pod, each.kind is Kind.SUPER) for each in self._assumed}
        return [self.request(pod, bound=bound) for pod, bound in pods.values()]

    def _settle(self) -> None:
        taken, self._taken = self._taken, []
        for request in taken:
            self._expect(self._topology, request)

    def _expect(self, topology: Topology, request: Request) -> None:
        """Expect the pod on the first node that takes it."""
        suitable = [node for node in self._nodes.super if not misses(request, node)]
        free = (node for node in suitable if not any(topology.misses(request, node)))
        if expected := next(free, suitable[0] if suitable else None):
            topology.add(request.pod, expected.metadata.name)


def _distinct(missed: Iterable[list[str]]) -> list[str]:
    return list(dict.fromkeys(miss for each in missed for miss in each))


def _sentence(missed: Sequence[str]) -> str:
    return (
        f"no super node {missed[0]}" if len(missed) == 1 else f"no super node does all: {'; '.join(missed)}"
    )


Change = Callable[[Pod, Gpus], dict[str, Any]]
"""Makes of a pod the spec that it would have, raw."""


class SuperNodeDestination:
    """What is taken counts for the pods that come after it. *to_look_up* are pods whose volumes must be read first."""

    def __init__(self, eligibility: Eligibility, fleet: Fleet, room: Room, outages: Outages) -> None:
        self._eligibility, self._fleet, self._room, self._outages = eligibility, fleet, room, outages
        self.to_look_up: list[Pod] = []

    def objections(self, pod: Pod, *, bound: bool) -> Objections | None:
        rules = self._eligibility.violations(pod)
        if rules is None:
            self.to_look_up.append(pod)
            return None
        if rules:
            return Objections(rules)
        request, (gpus, asked) = self._request(pod, bound=bound), self._fleet.gpus(pod)
        if misfit := self._fleet.why_not(request):
            outages = map(self._outages.seconds, self._fleet.passing(request))
            misfit += "" if gpus is Gpus.UNUSED else hint(gpus, asked)
            return Objections(misfit=misfit, outage=min(outages, default=None))
        if gpus is Gpus.WANTED and (stray := self._fleet.stray(request)):
            return Objections((no_way(asked, stray),))
        return Objections()

    def take(self, pod: Pod, *, bound: bool) -> str:
        if full := self._room.take(pod):
            return full
        self._fleet.take(self._request(pod, bound=bound))
        return ""

    def first_tier(self, pod: Pod, *, bound: bool) -> int | None:
        """Which of several tiers it goes to first."""
        return self._fleet.first_tier(self._request(pod, bound=bound))

    def is_asked_for(self, pod: Pod) -> bool:
        return self._fleet.is_asked_for(_request(pod, as_is))

    def gpus(self, pod: Pod) -> Gpus:
        return self._fleet.gpus(pod)[0]

    def _request(self, pod: Pod, *, bound: bool) -> Request:
        return self._fleet.request(pod, bound=bound, volumes=self._eligibility.reach(pod))


def as_is(pod: Pod, _: Gpus) -> dict[str, Any]:
    return spec_of(pod)


def _request(pod: Pod, change: Change, volumes: tuple[Reach, ...] = (), gpus: Gpus = Gpus.UNUSED) -> Request:
    return Request(pod, _spec(pod.unbound or Unbound(), change, gpus), volumes)


@lru_cache(maxsize=512)
def _spec(unbound: Unbound, change: Change, gpus: Gpus) -> PodSpec:
    """Of a pod as it is or would be; decoded once for each version of it."""
    return msgspec.convert(change(Pod(unbound=unbound), gpus), PodSpec)
