"""What `drawbridge simulate scale` foresees is where the replicas go."""

from __future__ import annotations

from typing import Any

import pytest

from api.elasticity import COST
from dev.lab.session import Lab
from kube.client import Resource
from tests.cluster.elasticity import DEPLOYMENTS, Shop, keeping, template
from tests.cluster.test_cli import shown
from tests.cluster.workloads import PODS


def predicted(shop: Shop, name: str, replicas: int) -> list[dict[str, Any]]:
    found = shown(shop.lab, "simulate", "scale", name, str(replicas), "-n", shop.namespace)
    placements: list[dict[str, Any]] = found["placements"]
    return placements


@pytest.mark.parametrize(("before", "after"), [(1, 6), (4, 5)], ids=["over the number", "beyond it"])
def test_new_replicas_of_a_deployment_go_where_it_was_foreseen(
    elastic_lab: Lab, before: int, after: int
) -> None:
    shop = Shop(elastic_lab)
    shop.deploy("web", before, template(keeping(3)))
    shop.settle("web", before)
    home, away = shop.home("web"), shop.away("web")

    places = [each["place"] for each in predicted(shop, "web", after)]
    scale(shop, "web", after, DEPLOYMENTS)

    assert len(places) == after - before
    assert len(shop.home("web") - home) == places.count("local node")
    assert len(shop.away("web") - away) == places.count("super node")


def going(shop: Shop, after: int) -> set[str]:
    found = shown(shop.lab, "simulate", "scale", "web", str(after), "-n", shop.namespace)
    return {each["pod"].partition("/")[2] for each in found["going"]}


def test_the_pods_of_the_lowest_deletion_cost_go_as_was_foreseen(elastic_lab: Lab) -> None:
    """Of equal ones the age decides, by its power of two: the answer would change with the seconds."""
    shop = Shop(elastic_lab)
    shop.deploy("web", 5, template({}))
    shop.settle("web", 5)
    pods = sorted(shop.home("web") | shop.away("web"))
    for cost, name in enumerate(pods):
        shop.client.patch(PODS, name, {"metadata": {"annotations": {COST: str(cost)}}}, shop.namespace)

    predicted = going(shop, 2)
    scale(shop, "web", 2, DEPLOYMENTS)

    assert predicted == set(pods[:3])
    assert shop.home("web") | shop.away("web") == set(pods[3:])


def scale(shop: Shop, name: str, replicas: int, resource: Resource) -> None:
    shop.scale(name, replicas, resource)
    shop.settle(name, replicas, resource)
