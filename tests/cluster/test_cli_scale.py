"""What `drawbridge simulate scale` foresees is where the replicas go."""

from __future__ import annotations

from typing import Any

import pytest

from kube.client import Resource
from lab.session import Lab
from tests.cluster.elasticity import DEPLOYMENTS, Shop, keeping, template, workload
from tests.cluster.test_cli_explain import shown
from tests.cluster.workloads import STATEFULSETS


def foreseen(shop: Shop, name: str, replicas: int) -> list[dict[str, Any]]:
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

    places = [each["place"] for each in foreseen(shop, "web", after)]
    scale(shop, "web", after, DEPLOYMENTS)

    assert len(places) == after - before
    assert len(shop.home("web") - home) == places.count("local node")
    assert len(shop.away("web") - away) == places.count("super node")


def test_new_replicas_of_a_stateful_set_go_where_it_was_foreseen(elastic_lab: Lab) -> None:
    shop = Shop(elastic_lab)
    made = workload("StatefulSet", "db", template(keeping(2)), replicas=1, serviceName="db")
    shop.create(STATEFULSETS, made)
    shop.settle("db", 1, STATEFULSETS)

    places = {each["replica"]: each["place"] for each in foreseen(shop, "sts/db", 4)}
    scale(shop, "db", 4, STATEFULSETS)

    assert places == {"db-1": "local node", "db-2": "super node", "db-3": "super node"}
    assert shop.away("db") == {"db-2", "db-3"}


@pytest.mark.parametrize("after", [4, 2], ids=["those on super nodes", "local ones, too"])
def test_the_pods_that_go_are_those_that_were_foreseen(elastic_lab: Lab, after: int) -> None:
    shop = Shop(elastic_lab)
    shop.deploy("web", 6, template(keeping(3)))
    shop.settle("web", 6)
    before = shop.home("web") | shop.away("web")

    found = shown(shop.lab, "simulate", "scale", "web", str(after), "-n", shop.namespace)
    going = {each["pod"].partition("/")[2] for each in found["going"]}
    scale(shop, "web", after, DEPLOYMENTS)

    assert len(going) == 6 - after
    assert shop.home("web") | shop.away("web") == before - going


def scale(shop: Shop, name: str, replicas: int, resource: Resource) -> None:
    shop.scale(name, replicas, resource)
    shop.settle(name, replicas, resource)
