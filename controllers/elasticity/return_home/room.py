"""Where local nodes have room for a pod: an estimate, by what is requested of each node.

An `Occupant` is what is kept of a pod only while the return is enabled: what it takes of its node, and whether it is
ready. It is the scheduler that decides. What it counts and this does not: volumes per node, dynamic resources, and
resizes in progress. A wrong guess costs one eviction, and a pause that grows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import chain

import msgspec

from api.elasticity import BURST
from controllers.elasticity.filters import Request, misses
from controllers.elasticity.nodes import Nodes, WatchedNode
from controllers.elasticity.pods import PodIndex, PodSpec, is_ready, slim
from controllers.elasticity.room import Fleet
from kube.quantities import amount
from kube.types import Condition, ObjectMeta, Value, complete

ON_NODES, BURSTS = "on a node", "burst"
"""Index values: pods that take something of a node, and those that went to super nodes because there was no room."""


class Occupant(Value, frozen=True):
    """*requests* are what the pod takes of its node; *spec* and annotations are kept of a burst pod only."""

    metadata: ObjectMeta = ObjectMeta()
    node_name: str = ""
    finished: bool = False
    ready: bool = False
    requests: Mapping[str, Decimal] = {}
    spec: bytes = b""

    @property
    def terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None


def facets(occupant: Occupant) -> Iterable[str]:
    if occupant.finished or not occupant.node_name:
        return
    yield ON_NODES
    if occupant.spec:
        yield BURSTS


def decode(encoded: msgspec.Raw) -> Occupant:
    """MsgspecError when it cannot be read."""
    raw = _POD.decode(encoded)
    place, metadata = _PLACE.decode(raw.spec), raw.metadata
    finished = raw.status.phase in ("Succeeded", "Failed")
    is_burst = BURST in metadata.annotations and bool(place.node_name)
    return Occupant(
        metadata if is_burst else slim(metadata),
        place.node_name,
        finished,
        is_ready(raw.status.conditions),
        {} if finished or not place.node_name else _SPEC.decode(raw.spec).requests,
        bytes(raw.spec) if is_burst else b"",
    )


class _Status(Value, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class _Pod(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: _Status = _Status()


class _Place(Value, frozen=True):
    node_name: str = ""


complete(Occupant, _Pod, _Place)
_POD = msgspec.json.Decoder(_Pod)
_PLACE = msgspec.json.Decoder(_Place)
_SPEC = msgspec.json.Decoder(PodSpec)


Amounts = Mapping[str, Decimal]
PODS = "pods"
"""The resource of which each pod takes one."""


def free(nodes: Iterable[WatchedNode], occupants: Iterable[Occupant]) -> dict[str, dict[str, Decimal]]:
    """What each node has left, by its name and the resource; less than nothing where it was overcommitted."""
    taken: dict[str, dict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for occupant in occupants:
        for resource, wanted in _with_itself(occupant.requests).items():
            taken[occupant.node_name][resource] += wanted
    return {
        name: {resource: amount(held) - taken[name][resource] for resource, held in allocatable.items()}
        for name, allocatable in ((node.metadata.name, node.status.allocatable) for node in nodes)
    }


class LocalRoom:
    """Of *nodes*' local ones, with the pods on them; what is reserved counts as taken. Built for one look."""

    def __init__(self, nodes: Nodes, occupants: Iterable[Occupant], pods: PodIndex) -> None:
        names = frozenset(node.metadata.name for node in nodes.local)
        self._fleet = Fleet(Nodes(names, nodes.any_ready, nodes.local, nodes.super), pods)
        self._nodes, self._free = nodes.local, free(nodes.local, occupants)
        self._hopeless: set[bytes] = set()
        """What asks as these do has no node, whatever other pods there are: room only becomes less."""

    def node_for(self, request: Request) -> str:
        """The name of a node that takes the pod; nothing when there is none."""
        if (shape := _shape(request)) in self._hopeless:
            return ""
        suitable = self._suitable(request)
        if (first := next(suitable, None)) is None:
            self._hopeless.add(shape)
            return ""
        if not self._fleet.is_constrained(request):
            return first
        fitting = {node.metadata.name for node in self._fleet.fitting(request)[0]}
        return next((name for name in chain([first], suitable) if name in fitting), "")

    def reserve(self, request: Request) -> bool:
        """Whether a node takes the pod: it is on its way to the first one that does."""
        if not (name := self.node_for(request)):
            return False
        for resource, wanted in _with_itself(request.resources).items():
            self._free[name][resource] = self._free[name].get(resource, Decimal()) - wanted
        return True

    def _suitable(self, request: Request) -> Iterator[str]:
        """By itself, in the order of cost: where pods are on super nodes local nodes are mostly full, and most pods ask
        for little."""
        wanted = _with_itself(request.resources)
        holding = (node for node in self._nodes if self._holds(node.metadata.name, wanted))
        return (node.metadata.name for node in holding if not misses(request, node))

    def _holds(self, name: str, wanted: Amounts) -> bool:
        held = self._free[name]
        return all(held.get(resource, Decimal()) >= needed for resource, needed in wanted.items() if needed)


def _with_itself(requests: Amounts) -> dict[str, Decimal]:
    return {**requests, PODS: Decimal(1)}


def _shape(request: Request) -> bytes:
    """All that decides which nodes suit it by itself."""
    spec, wanted = request.spec, sorted(request.resources.items())
    return msgspec.json.encode(
        (wanted, spec.node_selector, spec.required, spec.tolerations, repr(request.volumes))
    )
