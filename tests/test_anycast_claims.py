"""Claims and the cluster's uuid as objects of the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from controllers.anycast_ip.claim import CLUSTER_UUID, Claim, body
from controllers.anycast_ip.sources import ClaimStore, cluster_uuid
from kube.errors import AlreadyExists, Conflict
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


def test_what_cannot_be_read_is_left_alone() -> None:
    kube = Kube()
    kube.place("configmaps", body(CLAIM) | {"data": {"claim": "no JSON"}})
    store = store_of(kube)
    store.load()

    assert store.claims == {}


@pytest.mark.parametrize(
    "known", [True, False], ids=["a change that is not ours", "a creation whose answer was lost"]
)
def test_a_claim_that_is_not_as_it_was_is_refused_once_and_then_written_over(known: bool) -> None:
    kube = Kube()
    store = store_of(kube)
    if known:
        store.put(CLAIM)
    kube.place("configmaps", body(replace(CLAIM, instance="ins-2")))
    with pytest.raises(Conflict if known else AlreadyExists):
        store.put(replace(CLAIM, address="eip-1"))
    store.put(replace(CLAIM, address="eip-1"))

    assert store.claims["u1"].address == "eip-1"


def test_a_claim_that_a_user_deleted_is_written_again() -> None:
    kube = Kube()
    store = store_of(kube)
    store.put(CLAIM)
    kube.objects.clear()
    store.put(replace(CLAIM, address="eip-1"))

    assert len(kube.objects) == 1


def test_the_clusters_uuid_is_made_once_and_kept() -> None:
    kube: Any = Kube()
    first = cluster_uuid(kube)

    assert cluster_uuid(kube) == first
    assert kube.objects["configmaps", CLUSTER_UUID]["data"] == {CLUSTER_UUID: first}


def test_an_emptied_uuid_is_not_created_again() -> None:
    kube: Any = Kube()
    kube.place("configmaps", {"metadata": {"name": CLUSTER_UUID}, "data": {}})
    with pytest.raises(ValueError, match="kube-system/aia-official-cluster-uuid"):
        cluster_uuid(kube)
