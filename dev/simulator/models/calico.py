"""Calico's allocator: blocks of nodes, reused first in, first out; a reserved address is not assigned.

After docs/reference of Calico's IPAM and tests with its own allocator: reservations are read at each assignment,
without a cache, and an assigned address stays with its pod whatever is reserved. A pod whose annotation names an
address gets that one, reserved or not, on any node, or none while another pod has it. Unlike there, one of no pool is
not asked for.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

from dev.fake_api import FakeAPI
from dev.fake_api.kinds import CALICO_V1, CALICO_V3, Kind
from dev.judge.observation import notes
from dev.judge.reservation import selects
from kube.client import Resource
from kube.resources import NODES

Raw = dict[str, Any]
RESERVATIONS = tuple(each.resource for each in (*CALICO_V3, *CALICO_V1))
POOLS, BLOCKS = (
    Resource("crd.projectcalico.org", "v1", each, namespaced=False) for each in ("ippools", "ipamblocks")
)
KINDS = (Kind(POOLS, "IPPool"), Kind(BLOCKS, "IPAMBlock"), *CALICO_V1)
POOL = "10.244.0.0/24"
ASKED = "cni.projectcalico.org/ipAddrs"


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
    on_assign: Callable[[Assignment], None] = lambda _: None
    on_release: Callable[[Assignment], None] = lambda _: None
    held: dict[str, Assignment] = field(default_factory=dict)
    """By address."""

    def __post_init__(self) -> None:
        self._use({POOL: ""})
        self._is_shown = False

    def _use(self, pools: Mapping[str, str]) -> None:
        self._pools = pools
        addresses = (str(address) for each in pools for address in ip_network(each).hosts())
        self._free = deque(each for each in addresses if each not in self.held)

    def show(self, pools: Mapping[str, str]) -> None:
        """From now on addresses come from *pools*: a nodeSelector by CIDR. Each is one block, and the API server has
        both.
        """
        self._use(pools)
        self._is_shown = True
        for pool, selector in pools.items():
            spec = {"cidr": pool, "nodeSelector": selector}
            self.api.put(POOLS, {"metadata": {"name": name_of(pool)}, "spec": spec})
        self.show_blocks()

    def show_blocks(self) -> None:
        for pool in self._pools if self._is_shown else ():
            allocations = [0 if str(each) in self.held else None for each in ip_network(pool)]
            spec = {"cidr": pool, "allocations": allocations}
            self.api.put(BLOCKS, {"metadata": {"name": name_of(pool)}, "spec": spec})

    def assign(self, pod: Raw) -> str | None:
        """A new address for the pod; None while every free one is reserved."""
        about, address = pod["metadata"], self._for(pod)
        if address is None or address not in self._free:
            return None
        self._free.remove(address)
        assignment = Assignment(address, about["uid"], about["namespace"], about["name"])
        self.held[address] = assignment
        self.show_blocks()
        self.on_assign(assignment)
        return address

    def _for(self, pod: Raw) -> str | None:
        for asked in json.loads(notes(pod).get(ASKED, "[]")):
            if any(ip_address(asked) in ip_network(each) for each in self._pools):
                return str(asked)
        node, reserved = self.api.find(NODES, pod["spec"]["nodeName"]) or {"metadata": {}}, self.reserved()
        own = [ip_network(pool) for pool, selector in self._pools.items() if selects(selector, node)]
        unreserved = (each for each in self._free if each not in reserved)
        return next((each for each in unreserved if any(ip_address(each) in pool for pool in own)), None)

    def release(self, pod: Raw) -> None:
        uid = pod["metadata"]["uid"]
        for address in [each for each, held in self.held.items() if held.pod == uid]:
            self.on_release(self.held.pop(address))
            self._free.append(address)
        self.show_blocks()

    def reserved(self) -> set[str]:
        return {
            cidr.partition("/")[0]
            for resource in RESERVATIONS
            for each in self.api.peek(resource)
            for cidr in (each.get("spec") or {}).get("reservedCIDRs") or ()
        }


def name_of(pool: str) -> str:
    return "pool-" + pool.translate(str.maketrans("./", "--"))
