"""What `drawbridge simulate scale` foresees is where the replicas go."""

from __future__ import annotations

from api.elasticity import COST
from dev.lab.session import Lab
from kube.resources import PODS
from tests.cluster.elasticity import Shop, template
from tests.cluster.test_cli import shown


def test_the_pods_of_the_lowest_deletion_cost_go_as_was_foreseen(elastic_lab: Lab) -> None:
    """Of equal ones the age decides, by its power of two: the answer would change with the seconds."""
    shop = Shop(elastic_lab)
    shop.deploy("web", 5, template({}))
    shop.settle("web", 5)
    pods = sorted(pod.metadata.name for pod in shop.pods("web"))
    for cost, name in enumerate(pods):
        shop.client.patch(PODS, name, {"metadata": {"annotations": {COST: str(cost)}}}, shop.namespace)

    going = shown(elastic_lab, "simulate", "scale", "web", "2", "-n", shop.namespace)["going"]
    shop.scale("web", 2)
    shop.settle("web", 2)

    assert {each["pod"].partition("/")[2] for each in going} == set(pods[:3])
    assert {pod.metadata.name for pod in shop.pods("web")} == set(pods[3:])
