"""The first N pods are local and the others on super nodes, whatever their workload does: on a real control plane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from dev.lab.session import Lab
from dev.outside import judged, of_placement
from kube.resources import DEPLOYMENTS, STATEFUL_SETS
from tests.cluster.elasticity import JOBS, Raw, Scene, Shop, is_home, keeping, template
from tests.cluster.scenes import playing, title
from tests.cluster.workloads import workload


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


def the_example_for_the_originals_scheduler_has_one_local_pod_which_is_the_last_to_go(shop: Shop) -> None:
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


def a_stateful_set_keeps_its_first_ordinals_also_after_an_update(shop: Shop) -> None:
    spec = {"replicas": 5, "serviceName": "db"}
    shop.create(STATEFUL_SETS, workload("StatefulSet", "db", template(keeping(2)), **spec))
    shop.settle("db", 5, STATEFUL_SETS)
    assert shop.home() == {"db-0", "db-1"}, shop.reasons()

    shop.update("db", STATEFUL_SETS)
    shop.settle("db", 5, STATEFUL_SETS)
    assert shop.home() == {"db-0", "db-1"}, shop.reasons()

    shop.scale("db", 3, STATEFUL_SETS)
    shop.settle("db", 3, STATEFUL_SETS)
    assert (shop.home(), shop.away()) == ({"db-0", "db-1"}, {"db-2"})


def the_pods_of_a_job_that_run_at_one_time_are_counted(shop: Shop) -> None:
    with judged(shop.lab, of_placement()) as outside:
        shop.create(JOBS, job("some", 1))
        shop.create(JOBS, job("none", 0))
        for name in ("some", "none"):
            shop.wait(lambda: succeeded(shop, name) == 8, f"all pods of job {name} to succeed")  # noqa: B023
        assert outside.findings() == []

    assert {pod.metadata.labels["app"] for pod in shop.pods() if is_home(pod)} == {"some"}


def job(name: str, number: int) -> Raw:
    made = template(keeping(number), restartPolicy="Never")
    made["metadata"]["labels"] = {"app": name}
    spec = {"completions": 8, "parallelism": 3, "template": made}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def succeeded(shop: Shop, name: str) -> int:
    return int(shop.client.get(JOBS, name, shop.namespace).get("status", {}).get("succeeded", 0))


SCENES: tuple[Scene, ...] = (
    the_example_for_the_originals_scheduler_has_one_local_pod_which_is_the_last_to_go,
    a_stateful_set_keeps_its_first_ordinals_also_after_an_update,
    the_pods_of_a_job_that_run_at_one_time_are_counted,
)


@pytest.fixture(scope="module")
def played(elastic_lab: Lab, subnets: Callable[[], None]) -> Iterator[Callable[[Scene], None]]:
    with playing({each: partial(_play, elastic_lab, each) for each in SCENES}) as end_of:
        yield end_of


def _play(lab: Lab, scene: Scene) -> None:
    scene(Shop(lab))


@pytest.mark.promise
@pytest.mark.parametrize("scene", SCENES, ids=title)
def test_in_the_lab(played: Callable[[Scene], None], scene: Scene) -> None:
    played(scene)


@pytest.mark.promise
def test_super_nodes_come_with_their_subnets_and_go_when_these_are_taken_away_and_no_pod_is_there(
    subnets: Callable[[], None],
) -> None:
    subnets()
