"""Every reason at once why a pod cannot run on a super node: the limits of the original, TKE Resilience."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from api.elasticity import is_daemon_pod
from controllers.elasticity.pod_spec import Candidate
from controllers.elasticity.volumes import Claim, unmountable

FIRST, LAST = 61000, 65534
RESERVED = f"super nodes keep ports {FIRST}-{LAST} for themselves"

PORT_RANGE = "net.ipv4.ip_local_port_range"

CLAIM_POLICY = "tke.cloud.tencent.com/vpc-ip-claim-delete-policy"
FIXED_IP = (
    CLAIM_POLICY,
    "k8s.v1.cni.galaxy.io/release-policy",
    "cni.projectcalico.org/ipAddrs",
    "cni.projectcalico.org/ipAddrsNoIpam",
)
"""How a pod asks for a fixed IP: of TKE's VPC-CNI, of TKE's own distribution (Galaxy), and of Calico."""


@dataclass(frozen=True)
class Case:
    """All that the rules know; *claims* are those of `volumes.needs`, by name, as far as they exist."""

    pod: Candidate
    claims: Mapping[str, Claim]
    excluded_namespaces: tuple[str, ...]


def daemon_pod(case: Case) -> Iterator[str]:
    owner = case.pod.metadata.controller
    if owner and is_daemon_pod(case.pod.metadata):
        yield f"it is a pod of DaemonSet {owner.name}: super nodes run none"


def excluded_namespace(case: Case) -> Iterator[str]:
    namespace = case.pod.metadata.namespace
    if namespace in case.excluded_namespaces:
        yield f"namespace {namespace} is one of excludedNamespaces ({', '.join(case.excluded_namespaces)})"


def local_port_range(case: Case) -> Iterator[str]:
    for sysctl in case.pod.spec.security_context.sysctls:
        # Kubernetes takes both separators.
        if sysctl.name.replace("/", ".") == PORT_RANGE and (why := _range_refused(sysctl.value)):
            yield f"sysctl {PORT_RANGE} is {sysctl.value[:40]!r}: {why}"


def fixed_ip(case: Case) -> Iterator[str]:
    annotations = case.pod.metadata.annotations
    for name in FIXED_IP:
        # Without a value the others ask for nothing; of this one the original minds that it is there at all.
        if annotations.get(name) or (name == CLAIM_POLICY and name in annotations):
            yield f"annotation {name} is {annotations[name][:40]!r}: super nodes give no fixed IP"


def container_ports(case: Case) -> Iterator[str]:
    for where, container in case.pod.spec.named_containers:
        for port in container.ports:
            for field, number in (("containerPort", port.container_port), ("hostPort", port.host_port)):
                if is_reserved(number):
                    yield f"{where}: {field} is {number}: {RESERVED}"


def probe_ports(case: Case) -> Iterator[str]:
    for where, container in case.pod.spec.named_containers:
        for field, probe in container.probes.items():
            number = container.number_of(probe.port)
            if is_reserved(number):
                named = f" (named {probe.port})" if number != probe.port else ""
                yield f"{where}: {field} asks port {number}{named}: {RESERVED}"


def volumes(case: Case) -> Iterator[str]:
    return unmountable(case.pod, case.claims)


RULES: tuple[Callable[[Case], Iterator[str]], ...] = (
    daemon_pod,
    excluded_namespace,
    local_port_range,
    fixed_ip,
    container_ports,
    probe_ports,
    volumes,
)


def violations(
    pod: Candidate, claims: Mapping[str, Claim], excluded_namespaces: tuple[str, ...]
) -> tuple[str, ...]:
    """A sentence for each limit that *pod* breaks, with the field, its value and the limit."""
    case = Case(pod, claims, excluded_namespaces)
    return tuple(reason for rule in RULES for reason in rule(case))


def is_reserved(port: int) -> bool:
    return FIRST <= port <= LAST


def overlaps(low: int, high: int) -> bool:
    """Whether a port from *low* to *high* is reserved."""
    return low <= LAST and high >= FIRST


def _range_refused(value: str) -> str:
    ports = re.fullmatch(r"\s*([0-9]{1,5})\s+([0-9]{1,5})\s*", value)
    if not ports or int(ports[1]) > int(ports[2]):
        return 'no range of ports; write for example "32768 60999"'
    low, high = int(ports[1]), int(ports[2])
    return f"it holds some of {FIRST}-{LAST}: {RESERVED}" if overlaps(low, high) else ""
