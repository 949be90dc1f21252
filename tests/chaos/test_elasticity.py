"""Leaders come to their end in the midst of placing a thousand pods, and the number at home is still exact."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from api.elasticity import PLACEMENT
from dev.judge import Observation
from dev.judge.observation import notes
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from dev.outside import WORKLOADS, Outside, judged, of_placement
from kube.resources import DEPLOYMENTS, NAMESPACES, PODS
from tests.chaos import programs
from tests.cluster import elasticity
from tests.cluster.elasticity import Shop, keeping, template

VALUES = {
    **elasticity.VALUES,
    "controllers": {"replicaCount": 2},
    "leaderElection": {"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms"},
}
AT_HOME = 10
PATIENCE = 240
"""Seconds for a thousand pods to be created, placed and ready on a busy machine."""


@pytest.fixture(scope="module")
def elastic_lab() -> Iterator[Lab]:
    """With room for 550 pods at home."""
    with running(values=VALUES, calico=None, nodes=2, kwok_nodes=5) as up:
        yield up


@contextmanager
def crowded(lab: Lab, deployments: int, replicas: int) -> Iterator[tuple[Shop, Outside]]:
    """So many Deployments are created at once; in the end each has its number at home, and had never more."""
    programs.await_ready(lab, "controllers")
    shop, names = Shop(lab), [f"web-{number}" for number in range(deployments)]
    with judged(lab, of_placement(), *WORKLOADS, namespace=shop.namespace) as outside:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: shop.deploy(name, replicas, template(keeping(AT_HOME))), names))
        yield shop, outside
        for name in names:
            lab.wait(lambda: is_ready(shop, name, replicas), PATIENCE, f"{name} to be ready")  # noqa: B023
        assert outside.at_rest() == []
    counts = {name: (len(shop.home(name)), len(shop.away(name))) for name in names}
    assert counts == dict.fromkeys(names, (AT_HOME, replicas - AT_HOME))
    shop.client.delete(NAMESPACES, shop.namespace)


def is_ready(shop: Shop, name: str, replicas: int) -> bool:
    return elasticity.is_settled(shop.client.get(DEPLOYMENTS, name, shop.namespace), replicas)


def leader_after(shop: Shop, outside: Outside, more: int, than: str = "") -> str:
    """The leader's pod, another *than* that, when so many *more* pods have been placed than now."""
    before = placed(outside.seen)
    programs.another_leader(shop.lab, than)
    outside.wait(lambda seen: placed(seen) >= before + more, f"{more} more pods to be placed", PATIENCE)
    return programs.another_leader(shop.lab, than)  # on a busy machine, one may have lost its lease meanwhile


def placed(seen: Observation) -> int:
    return sum(PLACEMENT in notes(pod) for pod in seen.pods.values())


def end_for_good(lab: Lab, pod: str) -> None:
    """Another pod takes its place, and not the same one again."""
    programs.kill(lab, pod)
    lab.client.delete(PODS, pod, programs.NAMESPACE, grace_seconds=0)


def test_two_leaders_are_killed_while_a_thousand_pods_of_twenty_deployments_are_placed(
    elastic_lab: Lab,
) -> None:
    with crowded(elastic_lab, 20, 50) as (shop, outside):
        first = leader_after(shop, outside, 100)
        end_for_good(elastic_lab, first)
        second = leader_after(shop, outside, 100, than=first)
        end_for_good(elastic_lab, second)
