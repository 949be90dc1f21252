"""`drawbridge simulate delete` shows the headroom of pools that Calico's own CRDs describe, where there are any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from typing import Any

from kube.client import Resource
from lab.session import Lab
from tests.cluster.test_cli import shown
from tests.cluster.workloads import running_pod

GROUP = ("crd.projectcalico.org", "v1")
POOLS, BLOCKS = (Resource(*GROUP, each, namespaced=False) for each in ("ippools", "ipamblocks"))
NAME = "headroom"


@contextmanager
def created(lab: Lab, resource: Resource, kind: str, spec: dict[str, Any]) -> Iterator[None]:
    body = {"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": NAME}, "spec": spec}
    lab.client.create(resource, body)
    try:
        yield
    finally:
        lab.client.delete(resource, NAME)


def test_the_headroom_of_pools_is_shown_or_why_it_is_not_known(lab: Lab, group: str, redis: str) -> None:
    [address] = running_pod(lab, redis, "a").status.addresses
    question = ("simulate", "delete", "a", "-n", redis)
    if group == "v3":
        assert "serves Calico's pools" in shown(lab, *question)["poolsUnknown"]
        return
    network = ip_network(f"{address}/26", strict=False)
    allocations = [0 if str(each) == address else None for each in network]
    block = {
        "cidr": str(network),
        "allocations": allocations,
        "attributes": [{}],
        "strictAffinity": False,
        "unallocated": [number for number, held in enumerate(allocations) if held is None],
    }
    with created(lab, POOLS, "IPPool", {"cidr": str(network)}), created(lab, BLOCKS, "IPAMBlock", block):
        found = shown(lab, *question)

    assert found["poolsUnknown"] == ""
    [pool] = [each for each in found["pools"] if each["pool"] == NAME]
    assert (pool["addresses"], pool["assigned"], pool["toBeReserved"]) == (64, 1, 1)
    assert pool["free"] == 63 - pool["reserved"]
