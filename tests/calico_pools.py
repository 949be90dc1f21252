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


def assigned_to(cidr: str, **pods: str) -> Raw:
    """A block with the addresses of *pods*: `redis_0="10.0.0.1"` is of pod redis/redis-0 on node-1, since 03:04."""
    raw = block(cidr, *pods.values())
    allocations, first = raw["spec"]["allocations"], int(ip_network(cidr).network_address)
    raw["spec"]["attributes"] = [noted(name.replace("_", "-")) for name in pods]
    for number, address in enumerate(pods.values()):
        allocations[int(ip_address(address)) - first] = number
    return raw


def noted(pod: str) -> Raw:
    """As Calico's CNI plugin notes an assignment."""
    about = {
        "namespace": "redis",
        "pod": pod,
        "node": "node-1",
        "timestamp": "2026-01-02 03:04:00.123456789 +0000 UTC m=+0.1",
    }
    return {"handle_id": f"k8s-pod-network.{pod}", "secondary": about}


def a_pool(cidr: str, name: str = "main", **spec: Any) -> IPPool:
    return msgspec.convert(pool(cidr, name, **spec), IPPool)


def a_block(cidr: str, *assigned: str) -> Block:
    return block_of(msgspec.convert(block(cidr, *assigned), IPAMBlock))
