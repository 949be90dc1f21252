"""The fields of a pod's spec that the scheduler's filters read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec

from kube.quantities import amount
from kube.selectors import REQUIRED, LabelSelector, NodeSelector
from kube.types import Toleration, Value, complete

HostPort = tuple[str, str, int]
"""Protocol, host IP and port."""
NONE = Decimal(0)
ANY_IP = ("", "0.0.0.0", "::")


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
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Ports(Value, frozen=True):
    """A container, as far as it matters to other pods."""

    ports: tuple[Port, ...] = ()
    restart_policy: str = ""


class Resources(Value, frozen=True):
    requests: dict[str, str] = {}


class Container(Ports, frozen=True):
    resources: Resources = Resources()


class Scheduling(Value, frozen=True):
    """What a pod asks of its node."""

    node_selector: dict[str, str] = {}
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()

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
    def spread(self) -> tuple[SpreadConstraint, ...]:
        """Those that keep a pod from being scheduled."""
        return tuple(
            each for each in self.topology_spread_constraints if each.when_unsatisfiable == "DoNotSchedule"
        )

    @property
    def requests(self) -> dict[str, Decimal]:
        """At least: of all containers and sidecars together, or of one init container alone."""
        found = _sum((*self.containers, *filter(_is_sidecar, self.init_containers)))
        for each in self.init_containers:
            for name, quantity in each.resources.requests.items():
                found[name] = max(found.get(name, NONE), amount(quantity))
        return found

    @property
    def host_ports(self) -> tuple[HostPort, ...]:
        return host_ports(self.containers, self.init_containers)


complete(Scheduling)


def scheduling_of(spec: Mapping[str, Any]) -> Scheduling:
    """Of a spec, raw; raises msgspec.ValidationError."""
    return msgspec.convert(spec, Scheduling)


def host_ports(containers: Iterable[Ports], init_containers: Iterable[Ports]) -> tuple[HostPort, ...]:
    """Of an init container only when it goes on as a sidecar."""
    return tuple(
        port for each in (*containers, *filter(_is_sidecar, init_containers)) for port in _host_ports(each)
    )


def conflict(one: HostPort, other: HostPort) -> bool:
    same_ip = one[1] == other[1] or one[1] in ANY_IP or other[1] in ANY_IP
    return same_ip and (one[0], one[2]) == (other[0], other[2])


@lru_cache(maxsize=1024)
def repelled_by(affinity: bytes) -> tuple[PodAffinityTerm, ...]:
    """The terms of required anti-affinity; one value for all pods of a template."""
    return _AFFINITY.decode(affinity).pod_anti_affinity.required


def _is_sidecar(container: Ports) -> bool:
    return container.restart_policy == "Always"


def _sum(containers: Iterable[Container]) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for each in containers:
        for name, quantity in each.resources.requests.items():
            found[name] = found.get(name, NONE) + amount(quantity)
    return found


def _host_ports(container: Ports) -> Iterator[HostPort]:
    return ((port.protocol, port.host_ip, port.host_port) for port in container.ports if port.host_port)


_AFFINITY = msgspec.json.Decoder(Affinity)
