"""Calico's allocator: blocks of nodes, reused first in, first out; a reserved address is not assigned.

After docs/reference of Calico's IPAM and tests with its own allocator: reservations are read at each assignment,
without a cache, and an assigned address stays with its pod whatever is reserved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

from dev.fake_api import FakeAPI
from dev.fake_api.kinds import CALICO_V1, CALICO_V3, Kind
from kube.client import Resource

Raw = dict[str, Any]
RESERVATIONS = tuple(each.resource for each in (*CALICO_V3, *CALICO_V1))
POOLS, BLOCKS = (
    Resource("crd.projectcalico.org", "v1", each, namespaced=False) for each in ("ippools", "ipamblocks")
)
KINDS = (Kind(POOLS, "IPPool"), Kind(BLOCKS, "IPAMBlock"), *CALICO_V1)
POOL = "10.244.0.0/24"


@dataclass(frozen=True)
class Assignment:
    """*pod* is its uid."""

    address: str
    pod: str
    namespace: str
    name: str


@dataclass
class Calico:
    """*assigned* is called with each assignment, *released* with each one that ends."""

    api: FakeAPI
    pool: str = POOL
    on_assign: Callable[[Assignment], None] = lambda _: None
    on_release: Callable[[Assignment], None] = lambda _: None
    held: dict[str, Assignment] = field(default_factory=dict)
    """By address."""

    def __post_init__(self) -> None:
        self._free = deque(str(each) for each in list(ip_network(self.pool).hosts()))
        self._is_shown = False

    def show(self, pool: str) -> None:
        """From now on all addresses come from *pool*, which is one block, and both can be read from the API server."""
        self.pool, self._is_shown = pool, True
        self._free = deque(str(each) for each in list(ip_network(pool).hosts()))
        self.api.put(POOLS, {"metadata": {"name": "main"}, "spec": {"cidr": pool}})
        self._show_block()

    def _show_block(self) -> None:
        if self._is_shown:
            allocations = [0 if str(each) in self.held else None for each in ip_network(self.pool)]
            spec = {"cidr": self.pool, "allocations": allocations}
            self.api.put(BLOCKS, {"metadata": {"name": "main"}, "spec": spec})

    def assign(self, pod: Raw) -> str | None:
        """A new address for the pod; None while every free one is reserved."""
        reserved = self.reserved()
        address = next((each for each in self._free if each not in reserved), None)
        if address is None:
            return None
        self._free.remove(address)
        about = pod["metadata"]
        assignment = Assignment(address, about["uid"], about["namespace"], about["name"])
        self.held[address] = assignment
        self._show_block()
        self.on_assign(assignment)
        return address

    def release(self, pod: Raw) -> None:
        uid = pod["metadata"]["uid"]
        for address in [each for each, held in self.held.items() if held.pod == uid]:
            self.on_release(self.held.pop(address))
            self._free.append(address)
        self._show_block()

    def reserved(self) -> set[str]:
        return {
            cidr.partition("/")[0]
            for resource in RESERVATIONS
            for each in self.api.peek(resource)
            for cidr in (each.get("spec") or {}).get("reservedCIDRs") or ()
        }
