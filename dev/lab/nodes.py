"""Nodes on which pods only seem to run: kwok plays them, and users' manifests land there as they are."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from ipaddress import ip_network
from types import MappingProxyType
from typing import Any
from zlib import crc32

from dev.lab.kwokctl import KWOK
from dev.lab.waiting import until
from kube.client import Client
from kube.errors import NotFound
from kube.resources import NODES
from kube.types import INSTANCE_TYPE, Node
from settings.anycast_ip import NEED_LABEL

ADDRESSES = ip_network("127.32.0.0/16")
"""Of this machine, as all of 127.0.0.0/8: what is sent to a node that is only played never leaves it."""
POD_ADDRESSES = ip_network("10.0.0.0/8")
PODS_PER_NODE = 1 << 14
"""How many pods a node may have, one after the other, before it gives the addresses of the next node."""
LAST = POD_ADDRESSES.num_addresses // PODS_PER_NODE - 1
CLOUD_ADDRESSES = ip_network("127.33.0.0/16")
ZONE = "100003"
NOT_READY = "node.kubernetes.io/not-ready"
CAPACITY = {"cpu": "32", "memory": "256Gi", "pods": "110"}


def kwok_node(number: int) -> dict[str, Any]:
    """Node ``kwok-<number>`` as kwok takes it into its care.

    In place of Calico, kwok gives the pods their addresses. It knows no reservations, but it never gives an
    address twice that lies outside of its node's range: so the range is of one address, and all others do.
    """
    pod_range = f"{POD_ADDRESSES[number * PODS_PER_NODE]}/32"
    name = f"kwok-{number}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
            "labels": {
                "type": "kwok",
                INSTANCE_TYPE: KWOK,
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
        },
        "spec": {"podCIDR": pod_range, "podCIDRs": [pod_range]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": str(ADDRESSES[number + 1])}],
            "capacity": dict(CAPACITY),
            "allocatable": dict(CAPACITY),
        },
    }


def cloud_node(name: str, instance: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """A node as TKE lets it join, with the id of its *instance* (none while that is empty), in kwok's care.

    All such nodes share the last range of addresses, from which kwok gives each address once.
    """
    node = kwok_node(LAST)
    node["metadata"]["name"] = name
    node["metadata"]["labels"] |= {"kubernetes.io/hostname": name, **labels}
    if instance:
        node["spec"]["providerID"] = f"qcloud:///{ZONE}/{instance}"
    node["status"]["addresses"][0]["address"] = str(CLOUD_ADDRESSES[crc32(name.encode()) % (1 << 16)])
    return node


def join(
    client: Client,
    name: str,
    *,
    instance: str | None = None,
    labels: Mapping[str, str] = MappingProxyType({NEED_LABEL: "true"}),
) -> Node:
    """Let a node join that needs an anycast IP, by default with an *instance* that no other ever had."""
    instance = f"ins-{secrets.token_hex(4)}" if instance is None else instance
    return client.create(NODES, cloud_node(name, instance, labels), type=Node)


def move(client: Client, name: str, address: str) -> None:
    """Let what listens on *address* of this machine be found on node *name*."""
    addresses = {"addresses": [{"type": "InternalIP", "address": address}]}
    client.patch(NODES.sub("status"), name, {"status": addresses})


def leave(client: Client, name: str) -> None:
    client.delete(NODES, name)


def play(client: Client, name: str, seconds: float = 60.0) -> None:
    """Back when super node *name* takes pods, and gives each an address that no other has."""
    addresses = {"spec": kwok_node(LAST)["spec"]}
    until(lambda: _changed(client, name, addresses), seconds, f"node {name} to be registered")
    await_ready(client, name, seconds)


def await_ready(client: Client, name: str, seconds: float = 60.0) -> None:
    """Back when node *name* takes pods."""
    until(lambda: _takes_pods(client, name), seconds, f"node {name} to be ready")


def _changed(client: Client, name: str, change: Mapping[str, Any]) -> bool:
    try:
        client.patch(NODES, name, change)
    except NotFound:
        return False
    return True


def _takes_pods(client: Client, name: str) -> bool:
    """Ready, and not tainted any more as one that is not."""
    node = client.get(NODES, name)
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
    taints = {each["key"] for each in node["spec"].get("taints", ())}
    return conditions.get("Ready") == "True" and NOT_READY not in taints


def create_kwok_nodes(client: Client, count: int, *, first: int = 0) -> None:
    """Add nodes ``kwok-<first>`` and on."""
    for number in range(first, first + count):
        client.create(NODES, kwok_node(number))
