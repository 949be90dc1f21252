"""Calico's own cooldown: from 3.33 on, it can keep each released address from being assigned for a time."""

from __future__ import annotations

import msgspec

from kube.client import Resource
from kube.types import Value

CONFIGURATIONS = (
    Resource("projectcalico.org", "v3", "ipamconfigurations", namespaced=False),
    Resource("crd.projectcalico.org", "v1", "ipamconfigs", namespaced=False),
)
"""Where it is set: by the group of Calico that is served, the first of these."""
NAME = "default"
FIELD = "ipCooldownSeconds"


class IPAMConfigurationSpec(Value, frozen=True):
    ip_cooldown_seconds: int = msgspec.field(default=0, name=FIELD)


class IPAMConfiguration(Value, frozen=True):
    spec: IPAMConfigurationSpec = IPAMConfigurationSpec()

    @property
    def cooldown(self) -> int:
        """Seconds, at most 1200; 0 where it is not set, and where this version of Calico does not know it."""
        return max(0, self.spec.ip_cooldown_seconds)
