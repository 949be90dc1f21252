"""Pods with addresses of each family, where kwok gives IPv4 addresses only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address
from itertools import cycle

from dev.lab.session import Lab
from kube.types import Pod
from tests.cluster import workloads

PREFIX = 0xFD00 << 112
FAMILIES: tuple[Callable[[str], list[str]], ...] = (
    lambda ipv4: [ipv4],
    lambda ipv4: [ipv6_of(ipv4)],
    lambda ipv4: [ipv4, ipv6_of(ipv4)],
)


def ipv6_of(ipv4: str) -> str:
    """An IPv6 address that no pod with another IPv4 address has."""
    return str(IPv6Address(PREFIX + int(IPv4Address(ipv4))))


def in_each_family(lab: Lab, pods: Sequence[Pod]) -> list[Pod]:
    """*pods*, in turn, with their IPv4 address, with an IPv6 address, and with both, as their kubelet would say."""
    given = [family(pod.status.pod_ip) for pod, family in zip(pods, cycle(FAMILIES), strict=False)]
    return [
        workloads.patch_status(lab, pod, podIP=ips[0], podIPs=[{"ip": ip} for ip in ips])
        for pod, ips in zip(pods, given, strict=True)
    ]
