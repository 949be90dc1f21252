"""The cluster's uuid as an object of the cluster, and claims that two threads read."""

from __future__ import annotations

from typing import Any

import pytest

from api.anycast_ip import TAINT
from controllers.anycast_ip.claim import CLUSTER_UUID, claim_for
from controllers.anycast_ip.sources import ClaimStore, cluster_identity
from dev.fake_api import Request
from tests.anycast_world import SETTINGS, Kube, a_node, config_map
from tests.factories import NOW
from tests.fakes import FakeClock


def test_the_clusters_uuid_is_made_once_and_kept() -> None:
    kube: Any = Kube()
    first = cluster_identity(kube)

    assert cluster_identity(kube) == first
    made = kube.objects["configmaps", CLUSTER_UUID]
    assert (made["data"][CLUSTER_UUID], made["metadata"]["uid"]) == first


def test_a_uuid_that_was_written_again_from_a_file_is_the_same() -> None:
    kube: Any = Kube()
    kube.place("configmaps", {"metadata": {"name": CLUSTER_UUID}, "data": {CLUSTER_UUID: "some-uuid\n"}})
    assert cluster_identity(kube)[0] == "some-uuid"


@pytest.mark.parametrize("data", [{}, {CLUSTER_UUID: "\n"}])
def test_an_emptied_uuid_is_not_created_again(data: dict[str, str]) -> None:
    kube: Any = Kube()
    kube.place("configmaps", {"metadata": {"name": CLUSTER_UUID}, "data": data})
    with pytest.raises(ValueError, match="kube-system/aia-official-cluster-uuid"):
        cluster_identity(kube)


def test_a_claim_that_two_threads_settle_at_once_is_settled() -> None:
    kube, claim = Kube(), claim_for(a_node(TAINT), SETTINGS, NOW)
    claims = ClaimStore(kube, "drawbridge", FakeClock(), "")
    kube.place("configmaps", config_map(claim))
    assert claims.look_for_late() == [claim.uid]
    others = [claim.uid]

    def meanwhile(_: Request) -> None:
        if others:
            claims.settle(others.pop())

    kube.api.fault = meanwhile
    claims.settle(claim.uid)

    assert claims.get(claim.uid) == claim
    assert claims.unsettled(claim.uid) is None
