"""The cluster's uuid as an object of the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.anycast_ip.claim import CLUSTER_UUID
from controllers.anycast_ip.sources import cluster_identity
from tests.anycast_world import Kube


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
