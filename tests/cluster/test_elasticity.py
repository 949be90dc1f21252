"""The first N pods are local and the others on super nodes, whatever their workload does: on a real control plane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dev.lab.session import Lab
from kube.resources import DEPLOYMENTS
from tests.cluster.elasticity import Raw, Shop


def example(**spec: Any) -> Raw:
    """The Deployment of the original's documentation, as it is written there."""
    container = {"name": "nginx", "image": "nginx", "imagePullPolicy": "IfNotPresent"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "nginx-deployment", "labels": {"app": "nginx"}},
        "spec": {
            "replicas": 4,
            "strategy": {"type": "RollingUpdate"},
            "selector": {"matchLabels": {"app": "nginx"}},
            "template": {
                "metadata": {
                    "annotations": {"AUTO_SCALE_EKS": "true", "LOCAL_REPLICAS": "1"},
                    "labels": {"app": "nginx"},
                },
                "spec": {**spec, "containers": [container]},
            },
        },
    }


@pytest.mark.promise
def test_the_example_for_the_originals_scheduler_has_one_local_pod_which_is_the_last_to_go(
    elastic_lab: Lab, subnets: Callable[[], None]
) -> None:
    """While subnets come and go."""
    shop = Shop(elastic_lab)
    shop.create(DEPLOYMENTS, example(schedulerName="tke-scheduler"))
    shop.settle("nginx-deployment", 4)
    home, away = shop.home(), shop.away()
    assert (len(home), len(away)) == (1, 3)

    shop.scale("nginx-deployment", 3)
    shop.settle("nginx-deployment", 3)
    assert shop.home() == home
    assert len(shop.away() & away) == 2

    shop.scale("nginx-deployment", 1)
    shop.settle("nginx-deployment", 1)
    assert (shop.home(), shop.away()) == (home, set())


@pytest.mark.promise
def test_super_nodes_come_with_their_subnets_and_go_when_these_are_taken_away_and_no_pod_is_there(
    subnets: Callable[[], None],
) -> None:
    subnets()
