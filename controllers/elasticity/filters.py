"""Why a node does not take a pod: the filters of the scheduler.

Each yields what the node misses, so that messages read "no super node has gpu=true".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import chain

import msgspec
from msgspec.structs import replace

from controllers.elasticity.nodes import CONDITIONS, WatchedNode
from controllers.elasticity.pods import (
    HOSTNAME,
    Pod,
    PodAffinityTerm,
    PodIndex,
    PodSpec,
    SpreadConstraint,
    conflict,
)
from kube.selectors import (
    REPELLING,
    Expression,
    LabelSelector,
    NodeSelector,
    describe,
    is_tolerated,
    selects,
    selects_labels,
)
from kube.types import ObjectMeta, Taint, amount

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
Match = tuple[tuple[str, ...] | None, LabelSelector | None]
"""Namespaces, None for all, and labels."""
EVERYTHING = LabelSelector()


@dataclass(frozen=True)
class Reach:
    """A volume that only some nodes reach; *name* is how messages call it."""

    name: str
    nodes: NodeSelector


@dataclass(frozen=True)
class Request:
    """A pod with the spec that it would have, and the volumes that it mounts; one that has a node leaves that."""

    pod: Pod
    spec: PodSpec
    volumes: tuple[Reach, ...] = ()

    @property
    def metadata(self) -> ObjectMeta:
        return self.pod.metadata

    @cached_property
    def resources(self) -> dict[str, Decimal]:
        return self.spec.requests


def node_selector(request: Request, node: WatchedNode) -> Iterator[str]:
    labels = node.metadata.labels
    wanted = request.spec.node_selector
    if missing := [f"{key}={value}" for key, value in wanted.items() if labels.get(key) != value]:
        yield f"has {', '.join(missing)}"


def node_affinity(request: Request, node: WatchedNode) -> Iterator[str]:
    required = request.spec.required
    if required and not selects(required, node.metadata.name, node.metadata.labels):
        yield f"meets its required node affinity ({describe(required)})"


def unschedulable(request: Request, node: WatchedNode) -> Iterator[str]:
    if node.spec.unschedulable and not is_tolerated(UNSCHEDULABLE, request.spec.tolerations):
        yield "is schedulable"


def taints(request: Request, node: WatchedNode) -> Iterator[str]:
    for taint in node.spec.taints:
        if taint.effect in REPELLING and not is_tolerated(taint, request.spec.tolerations):
            yield f"is without taint {taint.key}:{taint.effect}"


def volumes(request: Request, node: WatchedNode) -> Iterator[str]:
    for volume in request.volumes:
        if not selects(volume.nodes, node.metadata.name, node.metadata.labels):
            yield f"reaches {volume.name} ({describe(volume.nodes)})"


def resources(request: Request, node: WatchedNode) -> Iterator[str]:
    """What the whole of *node* does not have; the scheduler decides by how much of it is free."""
    held = node.status.allocatable
    for name, wanted in request.resources.items() if held else ():
        if wanted > amount(held.get(name, "0")):
            yield f"has {wanted.normalize():f} {name}"


Filter = Callable[[Request, WatchedNode], Iterator[str]]
FILTERS: tuple[Filter, ...] = (node_selector, node_affinity, unschedulable, taints, volumes, resources)


def misses(request: Request, node: WatchedNode, filters: Iterable[Filter] = FILTERS) -> list[str]:
    """All that keeps the pod off *node*."""
    return [miss for found in filters for miss in found(request, node)]


def is_passing(request: Request, node: WatchedNode) -> bool:
    """Whether *node* would take the pod as soon as its state is better."""
    lasting = tuple(taint for taint in node.spec.taints if taint.key not in CONDITIONS)
    better = replace(node, spec=replace(node.spec, taints=lasting))
    return node.in_trouble and not misses(request, better)


def is_asked_for(request: Request, node: WatchedNode) -> bool:
    """Whether the labels and the name of *node* are what the pod asks for, whatever else keeps it off."""
    return not misses(request, node, (node_selector, node_affinity))


def looks_at_others(request: Request) -> bool:
    """Whether it matters to the pod itself which others there are."""
    pod, asks = request.pod, request.spec
    return bool(pod.host_ports or pod.repels or asks.attracts or asks.spread)


class Topology:
    """The pods on all *nodes*, of which some are *candidates*; pods on their way are added where they are expected."""

    def __init__(
        self, nodes: Iterable[WatchedNode], candidates: Iterable[WatchedNode], pods: PodIndex
    ) -> None:
        self._nodes = {node.metadata.name: node for node in nodes}
        self._of_candidates = {label for node in candidates for label in node.metadata.labels.items()}
        self._pods = pods
        near = (
            name
            for name, node in self._nodes.items()
            if (HOSTNAME, node.metadata.labels.get(HOSTNAME)) in self._of_candidates
        )
        repelling = chain(pods.repelling(), *map(pods.repelling_on, near))
        self._repelling = [
            repulsion for pod in repelling for repulsion in self._repulsions(pod, pod.node_name)
        ]
        self._added: list[tuple[Pod, str]] = []
        self._counts: dict[bytes, tuple[tuple[Match, ...], Counter[str]]] = {}
        self._domains: dict[bytes, list[WatchedNode]] = {}

    def add(self, pod: Pod, node: str) -> None:
        self._added.append((pod, node))
        self._repelling += self._repulsions(pod, node)
        for matches, counter in self._counts.values():
            counter[node] += _meets_all(pod, matches)

    def misses(self, request: Request, node: WatchedNode) -> Iterator[str]:
        yield from self._ports(request, node)
        yield from self._repelled(request, node)
        yield from self._repels(request, node)
        yield from self._attracts(request, node)
        for constraint in request.spec.spread:
            if self._skew(request, constraint, node) > constraint.max_skew:
                yield f"keeps maxSkew {constraint.max_skew} (by {constraint.topology_key})"

    def _ports(self, request: Request, node: WatchedNode) -> Iterator[str]:
        if not (wanted := request.pod.host_ports):
            return
        name = node.metadata.name
        there = (*self._pods.on_node(name), *(pod for pod, at in self._added if at == name))
        taken = [port for pod in there for port in pod.host_ports]
        for port in wanted:
            if any(conflict(port, other) for other in taken):
                yield f"has host port {port[2]}/{port[0]} free"

    def _repelled(self, request: Request, node: WatchedNode) -> Iterator[str]:
        """By the anti-affinity of pods that are there."""
        keys = {
            key
            for key, value, match in self._repelling
            if node.metadata.labels.get(key) == value and _meets(request.pod, match)
        }
        for key in sorted(keys):
            yield _apart(key)

    def _repels(self, request: Request, node: WatchedNode) -> Iterator[str]:
        for term in request.pod.repels:
            counts = self._count((_match(term, request.pod, unknown=None),))
            if self._in_domain(counts, term.topology_key, node):
                yield _apart(term.topology_key)

    def _attracts(self, request: Request, node: WatchedNode) -> Iterator[str]:
        terms = request.spec.attracts
        if not terms:
            return
        matches = tuple(_match(term, request.pod, unknown=term.namespaces) for term in terms)
        counts = self._count(matches)
        if not counts.total() and _meets_all(request.pod, matches):
            # The first of pods that ask for each other goes anywhere in the topology.
            missing = [term for term in terms if term.topology_key not in node.metadata.labels]
        else:
            missing = [term for term in terms if not self._in_domain(counts, term.topology_key, node)]
        for term in missing:
            yield f"has pods that its affinity asks for (by {term.topology_key})"

    def _skew(self, request: Request, constraint: SpreadConstraint, node: WatchedNode) -> float:
        key, labels = constraint.topology_key, node.metadata.labels
        if key not in labels:
            return float("inf")
        match = _spread_match(constraint, request.pod)
        is_counted, counts = _meets(request.pod, match), self._count((match,))
        domains: Counter[str] = Counter()
        for eligible in self._eligible(request, constraint):
            name = eligible.metadata.name
            # One that is to return leaves its node: the scheduler counts none that terminate.
            leaves = is_counted and name == request.pod.node_name
            domains[eligible.metadata.labels[key]] += counts[name] - leaves
        enough = len(domains) >= (constraint.min_domains or 1)
        least = min(domains.values()) if enough else 0
        return domains[labels[key]] + is_counted - least

    def _eligible(self, request: Request, constraint: SpreadConstraint) -> list[WatchedNode]:
        """The nodes whose pods are counted; the same for all pods of a template."""
        asks = request.spec
        about = (asks.node_selector, asks.affinity.node_affinity, asks.tolerations, asks.spread, constraint)
        cached = msgspec.json.encode(about)
        if cached not in self._domains:
            any_affinity = constraint.node_affinity_policy == "Ignore"
            any_taint = constraint.node_taints_policy == "Ignore"
            self._domains[cached] = [
                node
                for node in self._nodes.values()
                if all(spread.topology_key in node.metadata.labels for spread in asks.spread)
                if any_affinity or is_asked_for(request, node)
                if any_taint or not any(taints(request, node))
            ]
        return self._domains[cached]

    def _count(self, matches: tuple[Match, ...]) -> Counter[str]:
        """How many pods on each node meet all of *matches*."""
        cached = msgspec.json.encode(matches)
        if cached not in self._counts:
            self._counts[cached] = (
                matches,
                Counter(node for pod, node in self._placed(matches[0][0]) if _meets_all(pod, matches)),
            )
        return self._counts[cached][1]

    def _placed(self, namespaces: tuple[str, ...] | None) -> Iterator[tuple[Pod, str]]:
        groups = [self._pods.bound()] if namespaces is None else map(self._pods.in_namespace, namespaces)
        yield from ((pod, pod.node_name) for pods in groups for pod in pods)
        yield from self._added

    def _repulsions(self, pod: Pod, name: str) -> Iterator[tuple[str, str, Match]]:
        """What *pod*, on the node of that *name*, keeps off candidates: topology key, its value, and which pods."""
        labels = self._nodes[name].metadata.labels if name in self._nodes else {}
        for term in pod.repels:
            key, value = term.topology_key, labels.get(term.topology_key)
            if value is not None and (key, value) in self._of_candidates:
                yield key, value, _match(term, pod, unknown=None)

    def _in_domain(self, counts: Mapping[str, int], key: str, node: WatchedNode) -> bool:
        """Whether a node with one of the counted pods has the same value of *key*."""
        value = node.metadata.labels.get(key)
        others = (self._nodes[name] for name, count in counts.items() if count and name in self._nodes)
        return value is not None and any(other.metadata.labels.get(key) == value for other in others)


def _apart(key: str) -> str:
    """Whichever of the two has the anti-affinity."""
    return f"is without pods that anti-affinity keeps it apart from (by {key})"


def _match(term: PodAffinityTerm, pod: Pod, *, unknown: tuple[str, ...] | None) -> Match:
    """*unknown* stands for the namespaces of a selector by labels, which are not looked up."""
    if term.namespace_selector == EVERYTHING:
        return None, term.label_selector
    if term.namespace_selector is not None:
        return unknown, term.label_selector
    return term.namespaces or (pod.metadata.namespace,), term.label_selector


def _spread_match(constraint: SpreadConstraint, pod: Pod) -> Match:
    labels = pod.metadata.labels
    same = tuple(
        Expression(key, "In", (labels[key],)) for key in constraint.match_label_keys if key in labels
    )
    selector = constraint.label_selector
    if selector is not None and same:
        selector = replace(selector, match_expressions=(*selector.match_expressions, *same))
    return (pod.metadata.namespace,), selector


def _meets(pod: Pod, match: Match) -> bool:
    namespaces, selector = match
    return (namespaces is None or pod.metadata.namespace in namespaces) and selects_labels(
        selector, pod.metadata.labels
    )


def _meets_all(pod: Pod, matches: Iterable[Match]) -> bool:
    return all(_meets(pod, match) for match in matches)
