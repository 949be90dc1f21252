"""The fields of a pod's spec that the scheduler's filters and the rules for super nodes read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from kube.quantities import amount
from kube.selectors import REQUIRED, LabelSelector, NodeSelector
from kube.types import ObjectMeta, Toleration, Value, complete

HostPort = tuple[str, str, int]
"""Protocol, host IP and port."""
ANY_IP = ("", "0.0.0.0", "::")
Amounts = Mapping[str, Decimal]
OF_PODS, HUGE_PAGES = ("cpu", "memory"), "hugepages-"
"""The resources that a pod may request as a whole; of any others, its containers count."""


class PodAffinityTerm(Value, frozen=True):
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""


class PodAffinity(Value, frozen=True):
    required: tuple[PodAffinityTerm, ...] = msgspec.field(default=(), name=REQUIRED)


class NodeAffinity(Value, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name=REQUIRED)


class Affinity(Value, frozen=True):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class SpreadConstraint(Value, frozen=True):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"


class Port(Value, frozen=True):
    name: str = ""
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Ports(Value, frozen=True):
    """A container, as far as it matters to other pods."""

    ports: tuple[Port, ...] = ()
    restart_policy: str = ""

    @property
    def is_sidecar(self) -> bool:
        """Of an init container: whether it goes on beside the others."""
        return self.restart_policy == "Always"


class Resources(Value, frozen=True):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class Handler(Value, frozen=True):
    port: int | str = 0


class Probe(Value, frozen=True):
    http_get: Handler | None = None
    tcp_socket: Handler | None = None
    grpc: Handler | None = None

    @property
    def port(self) -> int | str:
        """A number or a name; 0 for a probe that runs a command."""
        handler = self.http_get or self.tcp_socket or self.grpc
        return handler.port if handler else 0


class Container(Ports, frozen=True):
    name: str = ""
    resources: Resources = Resources()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None

    @property
    def probes(self) -> dict[str, Probe]:
        """By the name of their field."""
        named = {
            "livenessProbe": self.liveness_probe,
            "readinessProbe": self.readiness_probe,
            "startupProbe": self.startup_probe,
        }
        return {name: probe for name, probe in named.items() if probe}

    def number_of(self, port: int | str) -> int:
        """As the kubelet resolves the port of a probe: by the container's own names, else as digits."""
        if isinstance(port, int):
            return port
        named = (each.container_port for each in self.ports if each.name == port)
        return next(named, int(port) if port.isascii() and port.isdigit() else 0)


class Sysctl(Value, frozen=True):
    name: str = ""
    value: str = ""


class SecurityContext(Value, frozen=True):
    sysctls: tuple[Sysctl, ...] = ()


class PodSpec(Value, frozen=True):
    """*volumes* are raw: the kind of each is the name of one of its fields."""

    node_selector: dict[str, str] = {}
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    security_context: SecurityContext = SecurityContext()
    volumes: tuple[dict[str, Any], ...] = ()
    resources: Resources = Resources()
    overhead: dict[str, str] = {}

    @property
    def required(self) -> NodeSelector | None:
        return self.affinity.node_affinity.required

    @property
    def attracts(self) -> tuple[PodAffinityTerm, ...]:
        return self.affinity.pod_affinity.required

    @property
    def repels(self) -> tuple[PodAffinityTerm, ...]:
        return self.affinity.pod_anti_affinity.required

    @property
    def spread(self) -> list[SpreadConstraint]:
        """Those that keep a pod from being scheduled."""
        constraints = self.topology_spread_constraints
        return [each for each in constraints if each.when_unsatisfiable == "DoNotSchedule"]

    @property
    def requests(self) -> dict[str, Decimal]:
        """What the scheduler wants of a node.

        What the pod as a whole requests; else what its containers and sidecars take together, or before that an init
        container and the sidecars that started before it. The overhead of its runtime class comes on top.
        """
        sidecars: Amounts = {}
        most: Amounts = {}
        for container in self.init_containers:
            wanted = _sum(_amounts(container.resources.requests), sidecars)
            if container.is_sidecar:
                sidecars = wanted
            most = _max(most, wanted)
        together = _sum(sidecars, *(_amounts(each.resources.requests) for each in self.containers))
        whole = {
            name: amount(quantity)
            for name, quantity in self.resources.requests.items()
            if name in OF_PODS or name.startswith(HUGE_PAGES)
        }
        return _sum(_max(together, most) | whole, _amounts(self.overhead))

    @property
    def host_ports(self) -> tuple[HostPort, ...]:
        return host_ports(self.containers, self.init_containers)

    @property
    def named_containers(self) -> Iterator[tuple[str, Container]]:
        """Each under the name that messages give it."""
        yield from ((f"initContainer {each.name}", each) for each in self.init_containers)
        yield from ((f"container {each.name}", each) for each in self.containers)


complete(PodSpec)


@dataclass(frozen=True)
class Candidate:
    """A pod that might go to a super node."""

    metadata: ObjectMeta
    spec: PodSpec


C = TypeVar("C", bound=Ports)


def host_ports(containers: Iterable[Ports], init_containers: Iterable[Ports]) -> tuple[HostPort, ...]:
    return tuple(
        (port.protocol, port.host_ip, port.host_port)
        for container in _lasting(containers, init_containers)
        for port in container.ports
        if port.host_port
    )


def conflict(one: HostPort, other: HostPort) -> bool:
    same_ip = one[1] == other[1] or one[1] in ANY_IP or other[1] in ANY_IP
    return same_ip and (one[0], one[2]) == (other[0], other[2])


@lru_cache(maxsize=1024)
def repelled_by(affinity: bytes) -> tuple[PodAffinityTerm, ...]:
    """The terms of required anti-affinity; one value for all pods of a template."""
    return _AFFINITY.decode(affinity).pod_anti_affinity.required


def _lasting(containers: Iterable[C], init_containers: Iterable[C]) -> Iterator[C]:
    """Without init containers that end: all but sidecars."""
    yield from containers
    yield from (each for each in init_containers if each.is_sidecar)


def _amounts(quantities: Mapping[str, str]) -> dict[str, Decimal]:
    return {name: amount(quantity) for name, quantity in quantities.items()}


def _sum(*all_of: Amounts) -> dict[str, Decimal]:
    found: dict[str, Decimal] = defaultdict(Decimal)
    for each in all_of:
        for name, quantity in each.items():
            found[name] += quantity
    return dict(found)


def _max(one: Amounts, other: Amounts) -> dict[str, Decimal]:
    return {name: max(one.get(name, Decimal()), other.get(name, Decimal())) for name in {**one, **other}}


_AFFINITY = msgspec.json.Decoder(Affinity)
