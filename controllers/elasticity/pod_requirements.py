"""What of a pod the rules for super nodes read; it is decoded only when such a decision is due."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kube.types import ObjectMeta, Value, complete


class Port(Value, frozen=True):
    name: str = ""
    container_port: int = 0
    host_port: int = 0


class Handler(Value, frozen=True):
    port: int | str = 0


class Probe(Value, frozen=True):
    http_get: Handler | None = None
    tcp_socket: Handler | None = None
    grpc: Handler | None = None

    @property
    def port(self) -> int | str:
        """What it connects to, by number or by a name; 0 for a probe that runs a command."""
        handler = self.http_get or self.tcp_socket or self.grpc
        return handler.port if handler else 0


class Container(Value, frozen=True):
    name: str = ""
    ports: tuple[Port, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None

    @property
    def probes(self) -> Iterator[tuple[str, Probe]]:
        """Each of its probes, under the name of its field."""
        named = zip(
            ("livenessProbe", "readinessProbe", "startupProbe"),
            (self.liveness_probe, self.readiness_probe, self.startup_probe),
            strict=True,
        )
        return ((name, probe) for name, probe in named if probe)

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


class CandidateSpec(Value, frozen=True):
    """*volumes* as they are: what kind each of them is, is said by the name of one of its fields."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    security_context: SecurityContext = SecurityContext()
    volumes: tuple[dict[str, Any], ...] = ()


class Candidate(Value, frozen=True):
    """A pod that might go to a super node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CandidateSpec = CandidateSpec()

    @property
    def containers(self) -> Iterator[tuple[str, Container]]:
        """All of them, each under the name that messages give it."""
        yield from ((f"initContainer {each.name}", each) for each in self.spec.init_containers)
        yield from ((f"container {each.name}", each) for each in self.spec.containers)


complete(Candidate)


def candidate(metadata: ObjectMeta, spec: bytes) -> Candidate:
    """A pod whose spec was kept as JSON."""
    return Candidate(metadata, msgspec.json.decode(spec, type=CandidateSpec))
