"""Calico's own configuration of its allocator, of which one field decides what an address can be given to."""

from __future__ import annotations

import time

from calico.reservations import AUTO, GROUPS
from kube.client import Client, Resource
from kube.errors import NotFound
from kube.types import Value, complete

NAME = "default"
"""Of the one object."""
CONFIGURATIONS = (
    Resource("projectcalico.org", "v3", "ipamconfigurations", namespaced=False),
    Resource("crd.projectcalico.org", "v1", "ipamconfigs", namespaced=False),
)
LEAST = 0.05


class _Spec(Value, frozen=True):
    strict_affinity: bool = False


class IPAMConfig(Value, frozen=True):
    spec: _Spec = _Spec()


complete(_Spec, IPAMConfig)


def strict_affinity(client: Client, api_version: str = AUTO, *, timeout: float) -> bool:
    """Whether a node may take only addresses of blocks that it has; by default it may borrow those of others.

    *timeout*, in seconds, is for all calls together. KubeError when it cannot be read.
    """
    end = time.monotonic() + timeout
    for each in CONFIGURATIONS[1:] if api_version == GROUPS[1] else CONFIGURATIONS:
        if client.serves(each, timeout=_left(end)):
            return _read(client, each, _left(end)).spec.strict_affinity
    return False


def _read(client: Client, resource: Resource, timeout: float) -> IPAMConfig:
    try:
        return client.get(resource, NAME, type=IPAMConfig, timeout=timeout)
    except NotFound:
        return IPAMConfig()


def _left(end: float) -> float:
    return max(LEAST, end - time.monotonic())
