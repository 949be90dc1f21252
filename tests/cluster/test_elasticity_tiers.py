"""Pods go to super nodes of the first tier while these have room, by the word of the real scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from lab.nodes import NODES, play
from lab.session import Lab
from tests.cluster.elasticity import SUBNET, Raw, Shop, asking, is_away, keeping, template
from tests.cluster.elasticity_subnets import node, node_of, taints
from tests.cluster.workloads import reconfigure

FIRST = {"id": "subnet-lab00011", "zone": "ap-guangzhou-4", "tier": 1}
SECOND = {"id": "subnet-lab00012", "zone": "ap-guangzhou-3", "tier": 2}
THIRD = {**SUBNET, "tier": 3}
ROOM = {"cpu": "20", "memory": "40Gi", "pods": "20"}
"""For twenty of these pods, and no more."""
SMALL = {"cpu": "1", "memory": "2Gi"}


@pytest.fixture(scope="module")
def tiers(elastic_lab: Lab) -> Iterator[Shop]:
    reconfigure(elastic_lab, {"cloud": {"subnets": [FIRST, SECOND, THIRD]}})
    shop = Shop(elastic_lab)
    for subnet in (FIRST, SECOND):
        play(elastic_lab.client, node_of(subnet))
    limit(elastic_lab, FIRST, ROOM)
    shop.wait(lambda: len(taints(node(elastic_lab, THIRD))) == 3, "the tiers to be on the nodes")
    try:
        yield shop
    finally:
        reconfigure(elastic_lab, {})


def limit(lab: Lab, subnet: Raw, room: Mapping[str, str]) -> None:
    status: dict[str, Any] = {"capacity": dict(room), "allocatable": dict(room)}
    lab.client.patch(NODES.sub("status"), node_of(subnet), {"status": status})


def where(shop: Shop, name: str = "") -> Counter[str]:
    return Counter(pod.spec.node_name for pod in shop.pods(name) if is_away(pod))


@pytest.mark.promise
def test_pods_of_all_workloads_go_to_the_first_tier_that_has_room(tiers: Shop) -> None:
    shop = tiers
    for number in range(4):
        shop.deploy(f"web-{number}", 5, template(keeping(0), **asking(SMALL)))
    for number in range(4):
        shop.settle(f"web-{number}", 5)
    print("TWENTY", where(shop))
    shop.scale("web-0", 10)
    shop.settle("web-0", 10)
    print("OVER", where(shop))
    shop.lab.kubectl("cordon", node_of(SECOND))
    shop.scale("web-1", 10)
    shop.settle("web-1", 10)
    print("CORDONED", where(shop))
    shop.lab.kubectl("uncordon", node_of(SECOND))
    for number in range(4):
        shop.scale(f"web-{number}", 0)
    shop.wait(lambda: not shop.pods(), "gone")
    limit(shop.lab, FIRST, {"cpu": "400", "memory": "2000Gi", "pods": "200"})
    shop.deploy("burst", 10, template(**asking({"cpu": "33", "memory": "2Gi"})))
    shop.settle("burst", 10)
    print("BURST", where(shop))
    shop.scale("burst", 20)
    shop.settle("burst", 20)
    print("BURST OVER", where(shop))
    shop.scale("burst", 0)
