"""A super node of the first tier accepts pods and starts none: on a real control plane, with the policies in force."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.lab.kwokctl import NOWHERE
from dev.lab.nodes import NODES, await_ready
from dev.lab.session import Lab
from tests.cluster.elasticity import SUBNET, TOO_LARGE, Shop, asking, is_away, keeping, template
from tests.cluster.elasticity_subnets import node, node_of, taints
from tests.cluster.workloads import reconfigure

SOLD_OUT = {"id": "subnet-lab00021", "zone": NOWHERE, "tier": 1}
OTHER = {**SUBNET, "tier": 2}
PLENTY = {"cpu": "1k", "memory": "1Ti", "pods": "110"}


@pytest.fixture
def sold_out(elastic_lab: Lab) -> Iterator[Shop]:
    shop, lab = Shop(elastic_lab), elastic_lab
    failover = {"enabled": True, "homeAfter": "5s"}
    reconfigure(lab, {"cloud": {"subnets": [SOLD_OUT, OTHER]}, "elasticity": {"homeFailover": failover}})
    shop.wait(lambda: node(lab, SOLD_OUT), "the super node")
    status = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": PLENTY, "allocatable": PLENTY}
    lab.client.patch(NODES.sub("status"), node_of(SOLD_OUT), {"status": status})
    await_ready(lab.client, node_of(SOLD_OUT))
    try:
        yield shop
    finally:
        # Of pods that come later none would end: nothing runs them.
        lab.kubectl("delete", "deployments,replicasets", "--all", "-n", shop.namespace)
        lab.kubectl("delete", "pods", "--all", "-n", shop.namespace, "--force", "--grace-period=0")
        reconfigure(lab, {})
        shop.wait(lambda: not node(lab, SOLD_OUT), "the super node to go")
        shop.wait(lambda: len(taints(node(lab, SUBNET))) == 1, "the node to be without a tier again")


@pytest.mark.promise
@pytest.mark.nightly
def test_pods_that_it_does_not_start_run_in_the_next_tier(sold_out: Shop) -> None:
    shop = sold_out
    shop.deploy("web", 2, template(keeping(0)))
    shop.deploy("burst", 1, template(**asking(TOO_LARGE)))
    there = node_of(SOLD_OUT)
    first = shop.wait(lambda: on(shop, there) if len(on(shop, there)) == 3 else None, "three pods to come")

    shop.settle("web", 2)
    shop.settle("burst", 1)
    assert {pod.spec.node_name for pod in shop.pods() if is_away(pod)} == {node_of(SUBNET)}
    assert shop.home() == set()
    for name in first:
        assert f"{there} did not start it for 5 s" in shop.await_event(name, "NotStartedBySuperNode")


def on(shop: Shop, name: str) -> set[str]:
    return {pod.metadata.name for pod in shop.pods() if pod.spec.node_name == name}
