"""Calico's pools and blocks, as an API server serves them."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import msgspec

from calico.pools import Block, IPAMBlock, IPPool, block_of
from dev.fake_api import Kind
from kube.client import Resource

CRD = ("crd.projectcalico.org", "v1")
POOLS, BLOCKS = (Resource(*CRD, each, namespaced=False) for each in ("ippools", "ipamblocks"))
KINDS = (Kind(POOLS, "IPPool"), Kind(BLOCKS, "IPAMBlock"))
Raw = dict[str, Any]


def pool(cidr: str, name: str = "main", **spec: Any) -> Raw:
    return {"metadata": {"name": name}, "spec": {"cidr": cidr, **spec}}


def block(cidr: str, *assigned: str) -> Raw:
    network = ip_network(cidr)
    allocations: list[int | None] = [None] * network.num_addresses
    for each in assigned:
        allocations[int(ip_address(each)) - int(network.network_address)] = 0
    name = cidr.replace(".", "-").replace("/", "-").replace(":", "-")
    unallocated = [number for number, held in enumerate(allocations) if held is None]
    spec = {"cidr": cidr, "allocations": allocations, "attributes": [{}], "unallocated": unallocated}
    return {"metadata": {"name": name}, "spec": {**spec, "strictAffinity": False}}


def a_pool(cidr: str, name: str = "main", **spec: Any) -> IPPool:
    return msgspec.convert(pool(cidr, name, **spec), IPPool)


def a_block(cidr: str, *assigned: str) -> Block:
    made = block_of(msgspec.convert(block(cidr, *assigned), IPAMBlock))
    assert made is not None
    return made
