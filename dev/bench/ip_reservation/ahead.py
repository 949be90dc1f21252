"""A pool for the addresses that kwok gives to pods: Calico, which did not, counts them as assigned."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from api.standing import RESERVED
from dev.bench.ip_reservation.storm import PATIENCE
from dev.lab.session import Lab
from kube.client import Client, Resource
from kube.errors import AlreadyExists, NotFound
from kube.resources import PODS
from kube.types import Pod

POOLS, BLOCKS = (
    Resource("crd.projectcalico.org", "v1", each, namespaced=False) for each in ("ippools", "ipamblocks")
)
NAME, NETWORKS = "kwok", 24
"""kwok begins with 10.0.0.0/24, and takes the next one for each node that has pods."""


def show_pool(client: Client, *, shown: bool) -> None:
    """Without it, no address is reserved ahead."""
    if not shown:
        with suppress(NotFound):
            client.delete(POOLS, NAME)
        return
    for each in (*(_block(f"10.{number}.0.0/16") for number in range(NETWORKS)), _pool()):
        with suppress(AlreadyExists):
            client.create(POOLS if each["kind"] == "IPPool" else BLOCKS, each)


def await_marks(lab: Lab, namespace: str, names: Sequence[str]) -> None:
    """Until the deletion of each of these pods needs no call."""

    def are_marked() -> bool:
        pods = lab.client.list(PODS, namespace, type=Pod, timeout=30.0).items
        marked = {pod.metadata.name for pod in pods if RESERVED in pod.metadata.annotations}
        if marked.issuperset(names):
            return True
        time.sleep(0.5)  # a list of thousands of pods costs what is to be measured
        return False

    lab.wait(are_marked, PATIENCE, f"{len(names)} pods to be marked")


def _pool() -> dict[str, Any]:
    # For no node, so that Calico's allocator gives none of them.
    return _object(
        "IPPool", NAME, {"cidr": "10.0.0.0/8", "blockSize": 26, "nodeSelector": "has(kwok-gives-it)"}
    )


def _block(cidr: str) -> dict[str, Any]:
    spec = {"cidr": cidr, "allocations": [0] * 65536, "attributes": [{}], "unallocated": []}
    return _object(
        "IPAMBlock",
        cidr.translate(str.maketrans("./", "--")),
        {**spec, "strictAffinity": False, "deleted": False},
    )


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": POOLS.api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
