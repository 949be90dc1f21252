"""Claims and the cluster's uuid as objects of the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from controllers.anycast_ip.claim import CLUSTER_UUID, Claim
from controllers.anycast_ip.sources import ClaimStore, cluster_identity
from tests.anycast_world import Kube
from tests.factories import NOW

CLAIM = Claim(uid="u1", node="n1", instance="ins-1", token="t", name="a", asked=NOW, tags=(("k", "v"),))


def store_of(kube: Kube) -> ClaimStore:
    client: Any = kube
    return ClaimStore(client, "drawbridge")


def test_claims_outlive_the_process() -> None:
    kube = Kube()
    first = store_of(kube)
    first.put(CLAIM)
    first.put(replace(CLAIM, address="eip-1"))
    second = store_of(kube)
    second.load()
    assert second.claims == {"u1": replace(CLAIM, address="eip-1")}
    second.drop("u1")
    second.drop("u1")

    assert kube.objects == {}
    assert second.claims == {}


def test_the_clusters_uuid_is_made_once_and_kept() -> None:
    kube: Any = Kube()
    first = cluster_identity(kube)

    assert cluster_identity(kube) == first
    made = kube.objects["configmaps", CLUSTER_UUID]
    assert (made["data"][CLUSTER_UUID], made["metadata"]["uid"]) == first


def test_an_emptied_uuid_is_not_created_again() -> None:
    kube: Any = Kube()
    kube.place("configmaps", {"metadata": {"name": CLUSTER_UUID}, "data": {}})
    with pytest.raises(ValueError, match="kube-system/aia-official-cluster-uuid"):
        cluster_identity(kube)
