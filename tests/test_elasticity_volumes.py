"""Volumes that super nodes mount, and those that keep a pod local; what has to be looked up to tell."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.elasticity.filters import Reach
from controllers.elasticity.rules import Claim, reach
from kube.selectors import Expression, NodeSelector, Term, selects
from kube.types import (
    ObjectMeta,
    PersistentVolume,
    TopologyRequirement,
    TopologyTerm,
)
from tests.tables import table
from tests.test_elasticity_rules import CLAIMING, pod, refused

MOUNTED = "super nodes mount nfs, cephfs, hostPath and CBS disks only"


# Volumes in the pod itself


KEEPING = ("nfs", "cephfs", "hostPath", "qcloudCbs")
PASSING = ("emptyDir", "configMap", "secret", "projected", "downwardAPI", "gitRepo")


@pytest.mark.parametrize("kind", [*KEEPING, *PASSING])
def test_a_volume_that_super_nodes_mount_is_no_reason(kind: str) -> None:
    assert refused(pod(spec={"volumes": [{"name": "data", kind: {}}]})) == ()


CBS_DRIVER = "com.tencent.cloud.csi.cbs"


@table(
    "source, named",
    {
        "another network's": ({"iscsi": {"lun": 0}}, "iscsi"),
        "another driver's": ({"csi": {"driver": "ebs.csi.aws.com"}}, "csi (ebs.csi.aws.com)"),
        "of a later Kubernetes": ({"image": {"reference": "a"}}, "image"),
        "without any detail": ({"rbd": None}, "rbd"),
        "of another interface": ({"flexVolume": {"driver": CBS_DRIVER}}, f"flexVolume ({CBS_DRIVER})"),
    },
)
def test_another_volume_is_a_reason(source: dict[str, Any], named: str) -> None:
    assert refused(pod(spec={"volumes": [{"name": "data", **source}]})) == (
        f"volume data is of kind {named}: {MOUNTED}",
    )


# Volumes of claims

EPHEMERAL = {
    "volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "cbs"}}}}]
}


def volume(**spec: Any) -> PersistentVolume:
    common = {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "claimRef": {"name": "data-web-0"},
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": "cbs",
        "mountOptions": ["hard"],
        "volumeMode": "Filesystem",
        "volumeAttributesClassName": "fast",
        "nodeAffinity": {"required": {"nodeSelectorTerms": []}},
    }
    return PersistentVolume(ObjectMeta(name="pv-1"), common | spec)


def bound(**spec: Any) -> Claim:
    """To a volume of that *spec*."""
    return Claim(bound_to="pv-1", volume=volume(**spec))


CFS = "com.tencent.cloud.csi.cfs"
LATER = f"{MOUNTED}; bind it first if it becomes one of these"
ANYWHERE = (
    "not bound yet: storage class cbs makes the disk on any node; let it wait"
    " (volumeBindingMode: WaitForFirstConsumer)"
)


def to_come(provisioner: str, storage_class: str = "cbs", *, waits: bool = True) -> Claim:
    return Claim(storage_class=storage_class, provisioner=provisioner, waits_for_consumer=waits)


@table(
    "found, said",
    {
        "no claim": (None, "which does not exist"),
        "no volume": (Claim(bound_to="pv-1"), "bound to pv-1, which does not exist"),
        "another driver": (
            bound(csi={"driver": CFS}),
            f"bound to pv-1, which is of kind csi ({CFS}): {MOUNTED}",
        ),
        "a disk of a node": (bound(local={"path": "/"}), f"bound to pv-1, which is of kind local: {MOUNTED}"),
        "to be made": (to_come("x", "fast"), f"to be made by x (storage class fast): {LATER}"),
        "of no class": (Claim(), f"to be made by an unknown provisioner (storage class none): {LATER}"),
        "whose disk may be made anywhere": (to_come(CBS_DRIVER, waits=False), f"which is {ANYWHERE}"),
        "bound to such a volume": (bound(csi={"driver": CBS_DRIVER}), ""),
        "to become a CBS disk": (to_come(CBS_DRIVER), ""),
        "to become one, by its older driver": (to_come("cloud.tencent.com/qcloud-cbs"), ""),
    },
)
@pytest.mark.parametrize("name", ["data-web-0", "web-0-data"])
def test_a_claim_of_another_volume_is_a_reason_and_so_is_one_made_for_the_pod(
    name: str, found: Claim | None, said: str
) -> None:
    judged = pod(spec=CLAIMING if name == "data-web-0" else EPHEMERAL)
    reasons = (f"volume data is of claim {name}, {said}",) if said else ()

    assert refused(judged, {name: found} if found else {}) == reasons


# Where a volume can be used

HERE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
IN_A = NodeSelector((Term(match_expressions=(Expression("zone", "In", ("a",)),)),))


@table(
    "found, name, nodes",
    {
        "a claim that does not exist": (None, "", None),
        "a class for all nodes": (Claim(storage_class="cbs"), "", None),
        "a volume for all nodes": (Claim("pv-1", PersistentVolume(spec={"nfs": {}})), "", None),
        "by the node affinity of its volume": (
            bound(nfs={}, nodeAffinity={"required": HERE}),
            "volume pv-1 of claim data-web-0",
            IN_A,
        ),
        "by the zones that its volume is labelled with": (
            Claim(
                bound_to="pv-1",
                volume=PersistentVolume(
                    ObjectMeta(name="pv-1", labels={"topology.kubernetes.io/zone": "a__b", "other": "x"}),
                    {"nfs": {}},
                ),
            ),
            "volume pv-1 of claim data-web-0",
            NodeSelector((Term((Expression("topology.kubernetes.io/zone", "In", ("a", "b")),)),)),
        ),
        "by the topologies of the storage class": (
            Claim(storage_class="cbs", topologies=(TopologyTerm((TopologyRequirement("zone", ("a",)),)),)),
            "storage class cbs of claim data-web-0",
            IN_A,
        ),
    },
)
def test_a_volume_says_on_which_nodes_it_can_be_used(
    found: Claim | None, name: str, nodes: NodeSelector | None
) -> None:
    claims = {"data-web-0": found} if found else {}
    assert reach(pod(spec=CLAIMING), claims) == ((Reach(name, nodes),) if nodes else ())


def test_a_volume_that_names_its_zone_by_the_label_of_before_is_reached_from_nodes_with_the_one_of_now() -> (
    None
):
    labels = {"failure-domain.beta.kubernetes.io/zone": "a__b"}
    volume = PersistentVolume(ObjectMeta(name="pv-1", labels=labels), {"nfs": {}})
    (limited,) = reach(pod(spec=CLAIMING), {"data-web-0": Claim("pv-1", volume)})

    zone = "topology.kubernetes.io/zone"
    assert selects(limited.nodes, "node", {zone: "b"})
    assert selects(limited.nodes, "node", labels | {"failure-domain.beta.kubernetes.io/zone": "a"})
    assert not selects(limited.nodes, "node", {zone: "c"})
