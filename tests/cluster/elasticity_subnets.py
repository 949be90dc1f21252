"""Subnets come into the configuration and leave it again, and super nodes with them: most of it is waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from api.elasticity import TAINT_KEY
from dev.lab import install
from dev.lab.kwokctl import NOWHERE
from dev.lab.nodes import NODES
from dev.lab.session import Lab
from kube.resources import PODS
from kube.types import INSTANCE_TYPE, SUPER_NODE
from tests.cluster.elasticity import SUBNET, Raw, Shop, template

EMPTY, OCCUPIED, UNMANAGED = ({"id": f"subnet-lab0000{number}", "zone": NOWHERE} for number in (2, 3, 4))
"""No kwok plays them: no pod of another test comes there."""


@contextmanager
def coming_and_going(lab: Lab) -> Iterator[Callable[[], None]]:
    """What it gives waits for the end of it, and raises what was wrong."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(come_and_go, Shop(lab)).result


def come_and_go(shop: Shop) -> None:
    lab = shop.lab
    lab.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_of(UNMANAGED)}})
    install.upgrade(lab, {"cloud": {"subnets": [SUBNET, EMPTY, OCCUPIED, UNMANAGED]}})
    for subnet in (EMPTY, OCCUPIED):
        shop.wait(lambda: node(lab, subnet), f"the super node of {subnet['id']}")  # noqa: B023
    assert_as_configured(node(lab, EMPTY), EMPTY)
    assert "managed-by" in Shop(lab, "default").await_event(node_of(UNMANAGED), "SuperNodeNotOurs")

    lab.kubectl("taint", "node", node_of(EMPTY), f"{TAINT_KEY}-")
    shop.wait(lambda: TAINT_KEY in taints(node(lab, EMPTY)), "the taint to be set again")

    shop.run("guest", template(nodeName=node_of(OCCUPIED)))
    install.upgrade(lab, {})
    shop.wait(lambda: not node(lab, EMPTY), "the empty super node to go")
    assert node(lab, OCCUPIED)["spec"]["unschedulable"]
    assert shop.pod("guest").spec.node_name == node_of(OCCUPIED)

    shop.client.delete(PODS, "guest", shop.namespace, grace_seconds=0)
    shop.wait(lambda: not node(lab, OCCUPIED), "the other one to go")
    assert taints(node(lab, UNMANAGED)).isdisjoint({TAINT_KEY})


def node_of(subnet: Raw) -> str:
    return f"eklet-{subnet['id']}"


def node(lab: Lab, subnet: Raw) -> Raw:
    """Empty when there is none."""
    return lab.client.find(NODES, node_of(subnet)) or {}


def taints(node: Raw) -> set[str]:
    return {taint["key"] for taint in node["spec"].get("taints", ())}


def assert_as_configured(node: Raw, subnet: Raw) -> None:
    labels, annotations = node["metadata"]["labels"], node["metadata"]["annotations"]
    assert labels[INSTANCE_TYPE] == SUPER_NODE
    assert labels["eks.tke.cloud.tencent.com/zone-name"] == subnet["zone"]
    assert labels["topology.kubernetes.io/zone"] == subnet["zone"]
    assert annotations["eks.tke.cloud.tencent.com/subnet-id"] == subnet["id"]
    assert {"key": TAINT_KEY, "effect": "NoSchedule"} in node["spec"]["taints"]
    assert "finalizers" not in node["metadata"]
