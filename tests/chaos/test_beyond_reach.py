"""Calico, which a webhook server needs to reserve, comes later than the pods; in a separate lab."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.lab import install
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from dev.outside import judged, of_reservations
from kube.errors import ServerError
from kube.resources import PODS
from tests.chaos.rules import HOLD, VALUES
from tests.chaos.storm import as_client_go, storming
from tests.cluster import workloads
from tests.cluster.workloads import GROUPS


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A lab without Calico, until a test brings it."""
    with running(calico=None, values=VALUES) as up:
        yield up


def test_deletions_wait_for_calico_and_take_its_v3_where_both_groups_are_served(lab: Lab, redis: str) -> None:
    for number in range(20):
        workloads.create_pod(lab, redis, f"redis-{number}")
    workloads.running_pod(lab, redis, "early")
    with pytest.raises(ServerError, match=f"{redis}/early keeps running .* is Calico installed") as refused:
        lab.client.delete(PODS, "early", redis, timeout=30)
    assert (refused.value.status, as_client_go(refused.value)) == (503, True)

    install.install_crds(lab.client, "both")

    with judged(lab, of_reservations(HOLD.total_seconds()), GROUPS["v3"]) as outside:
        with storming(lab, workloads.pods_of(lab, redis)) as storm:
            storm.let(21)
        assert lab.client.list(GROUPS["v1"]).items == []
        assert outside.at_rest() == []
