"""Calico's own configuration of its allocator: what a released address can be given to, and after which time."""

from __future__ import annotations

import msgspec

from calico.reservations import AUTO, GROUPS, first_served, left_until
from kube.client import Client, Resource
from kube.errors import NotFound
from kube.types import Value, complete
from runtime import time

CONFIGURATIONS = (
    Resource("projectcalico.org", "v3", "ipamconfigurations", namespaced=False),
    Resource("crd.projectcalico.org", "v1", "ipamconfigs", namespaced=False),
)
"""Where it is set: by the group of Calico that is served, the first of these."""
NAME = "default"
"""Of the one object."""
COOLDOWN = "ipCooldownSeconds"


class IPAMConfigurationSpec(Value, frozen=True):
    strict_affinity: bool = False
    ip_cooldown_seconds: int = msgspec.field(default=0, name=COOLDOWN)


class IPAMConfiguration(Value, frozen=True):
    spec: IPAMConfigurationSpec = IPAMConfigurationSpec()

    @property
    def strict_affinity(self) -> bool:
        """Whether a node may take only addresses of blocks that it has; by default it may borrow those of others."""
        return self.spec.strict_affinity

    @property
    def cooldown(self) -> int:
        """For how many seconds Calico gives a released address to no pod, not even to one that asks for it.

        At most 1200; 0 where it is not set, and where this version of Calico does not know it: 3.33 is the first.
        """
        return max(0, self.spec.ip_cooldown_seconds)


complete(IPAMConfigurationSpec, IPAMConfiguration)


def ipam_configuration(client: Client, api_version: str = AUTO, *, timeout: float) -> IPAMConfiguration:
    """Its defaults where there is none. *timeout*, in seconds, is for all calls together. KubeError."""
    end = time.monotonic() + timeout
    candidates = CONFIGURATIONS[1:] if api_version == GROUPS[1] else CONFIGURATIONS
    if (resource := first_served(client, candidates, timeout)) is None:
        return IPAMConfiguration()
    try:
        return client.get(resource, NAME, type=IPAMConfiguration, timeout=left_until(end))
    except NotFound:
        return IPAMConfiguration()
