"""Pods without local room go to super nodes in place, if they can run there: on a real control plane."""

from __future__ import annotations

from typing import Any

import pytest

from api.elasticity import COST, SUPER_COST
from dev.lab.session import Lab
from kube.client import Resource
from kube.types import Pod
from tests.cluster.elasticity import CLAIMS, TOO_LARGE, Raw, Shop, asking, bind, manifest, template

CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", namespaced=False)
CBS = "com.tencent.cloud.csi.cbs"


@pytest.mark.promise
def test_what_local_nodes_have_no_room_for_goes_in_place(elastic_lab: Lab) -> None:
    """There are three local nodes, and each has room for one of these pods."""
    shop = Shop(elastic_lab)
    shop.deploy("web", 5, template(**asking({"cpu": "20"})))
    first = shop.wait(lambda: names(shop.pods()) if len(shop.pods()) == 5 else None, "five pods")
    shop.settle("web", 5)

    assert (len(shop.home()), len(shop.away())) == (3, 2)
    assert first == shop.home() | shop.away()
    for name in shop.away():
        assert "no local node has room" in shop.await_event(name, "SentToSuperNode").lower()
        shop.wait(lambda: costs(shop).get(name) == SUPER_COST, f"{name} to be the first to go")  # noqa: B023
    assert costs(shop).keys() == shop.away()


def names(pods: list[Pod]) -> set[str]:
    return {pod.metadata.name for pod in pods}


def costs(shop: Shop) -> dict[str, str]:
    annotations = {pod.metadata.name: pod.metadata.annotations for pod in shop.pods()}
    return {name: held[COST] for name, held in annotations.items() if COST in held}


def large(annotations: Raw | None = None, **spec: Any) -> Raw:
    return template(annotations, **asking(TOO_LARGE, **spec))


def with_claim(name: str) -> Raw:
    return large(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": name}}])


BOUND: dict[str, Raw] = {
    "host-path": {"hostPath": {"path": "/data"}},
    "cbs": {"csi": {"driver": CBS, "volumeHandle": "disk-1"}},
}
"""Volumes to which claims of the same names are bound."""

TAKEN: dict[str, Raw] = {
    "volumes": large(volumes=[{"name": "a", **BOUND["host-path"]}, {"name": "b", "emptyDir": {}}]),
    "claim-cbs": with_claim("cbs"),
    "claim-later-cbs": with_claim("later-cbs"),
}
"""Pods that may go."""


def leave_unbound(shop: Shop, name: str, provisioner: str) -> None:
    """A claim that waits for somebody to make its volume."""
    made = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    shop.client.create(
        CLASSES,
        {**manifest("StorageClass", f"{shop.namespace}-{name}", **made), "apiVersion": "storage.k8s.io/v1"},
    )
    wanted = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": f"{shop.namespace}-{name}",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    shop.create(CLAIMS, manifest("PersistentVolumeClaim", name, spec=wanted))


def test_what_super_nodes_can_run_goes(elastic_lab: Lab) -> None:
    """There is no local room for any of these pods."""
    crowd = Shop(elastic_lab)
    for name, source in BOUND.items():
        bind(crowd, name, source)
    leave_unbound(crowd, "later-cbs", CBS)
    for name, pod in TAKEN.items():
        crowd.run(name, pod)
    for name in TAKEN:
        crowd.await_event(name, "SentToSuperNode")
    # For the third one, the scheduler waits for the disk, which no provisioner makes here.
    crowd.await_away("volumes", "claim-cbs")
