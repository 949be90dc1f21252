"""Pods go to the first tier that has room: on a real scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from api.elasticity import REASON
from dev.lab.nodes import NODES, play
from dev.lab.session import Lab
from tests.cluster.elasticity import SUBNET, TOO_LARGE, Raw, Shop, asking, is_away, keeping, template
from tests.cluster.elasticity_subnets import node, node_of, taints
from tests.cluster.workloads import reconfigure

FIRST = {"id": "subnet-lab00011", "zone": "ap-guangzhou-4", "tier": 1}
SECOND = {"id": "subnet-lab00012", "zone": "ap-guangzhou-6", "tier": 2}
THIRD = {**SUBNET, "tier": 3}
"""It is there before, without a tier."""
SMALL = {"cpu": "1", "memory": "2Gi"}
TWENTY = {"cpu": "20", "memory": "40Gi", "pods": "110"}
"""Room for that many small pods."""
PLENTY = {"cpu": "1k", "memory": "1Ti", "pods": "110"}
WORKLOADS = ("web-0", "web-1", "web-2", "web-3")


@pytest.fixture(scope="module")
def subnets_of_kinds(elastic_lab: Lab) -> Iterator[Shop]:
    shop = Shop(elastic_lab)
    reconfigure(elastic_lab, {"cloud": {"subnets": [FIRST, SECOND, THIRD]}})
    for subnet in (FIRST, SECOND):
        play(elastic_lab.client, node_of(subnet))
    shop.wait(lambda: len(taints(node(elastic_lab, THIRD))) == 3, "the node that was there to be of tier 3")
    try:
        yield shop
    finally:
        elastic_lab.kubectl("delete", "deployments,pods", "--all", "-n", shop.namespace)
        reconfigure(elastic_lab, {})
        shop.wait(lambda: len(taints(node(elastic_lab, SUBNET))) == 1, "the node to be without a tier again")
        for subnet in (FIRST, SECOND):
            # Also those of other tests: a node goes when it has none, and takes no more.
            selector = f"--field-selector=spec.nodeName={node_of(subnet)}"
            elastic_lab.kubectl("delete", "pods", "--all-namespaces", selector, "--wait=false")
        shop.wait(lambda: not any(map(partial(node, elastic_lab), (FIRST, SECOND))), "the others to go")


@pytest.mark.promise
def test_pods_of_all_workloads_go_to_the_first_tier_that_has_room(subnets_of_kinds: Shop) -> None:
    shop = subnets_of_kinds
    give(shop.lab, FIRST, TWENTY)
    for name in WORKLOADS:
        shop.deploy(name, 5, template(keeping(0), **asking(SMALL)))
    for name in WORKLOADS:
        shop.settle(name, 5)
    assert where(shop) == {FIRST["id"]: 20}
    assert all(pod.metadata.annotations[REASON].endswith("tier 1 first") for pod in shop.pods())

    grow(shop, "web-0", 10)
    assert where(shop) == {FIRST["id"]: 20, SECOND["id"]: 5}

    shop.lab.kubectl("cordon", node_of(SECOND))
    grow(shop, "web-1", 10)
    assert where(shop) == {FIRST["id"]: 20, SECOND["id"]: 5, THIRD["id"]: 5}

    give(shop.lab, FIRST, PLENTY)
    shop.lab.kubectl("uncordon", node_of(SECOND))
    shop.deploy("burst", 10, template(**asking(TOO_LARGE)))
    shop.settle("burst", 10)
    assert where(shop, "burst") == {FIRST["id"]: 10}


def give(lab: Lab, subnet: Raw, room: Mapping[str, str]) -> None:
    status: dict[str, Any] = {"capacity": dict(room), "allocatable": dict(room)}
    lab.client.patch(NODES.sub("status"), node_of(subnet), {"status": status})


def grow(shop: Shop, name: str, replicas: int) -> None:
    shop.scale(name, replicas)
    shop.settle(name, replicas)


def where(shop: Shop, name: str = "") -> Counter[str]:
    """How many run in which subnet."""
    return Counter(pod.spec.node_name.removeprefix("eklet-") for pod in shop.pods(name) if is_away(pod))
