"""Volumes that super nodes mount, and those that keep a pod local; what has to be looked up to tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from controllers.elasticity.eligibility import gather
from controllers.elasticity.filters import Reach
from controllers.elasticity.rules import Claim, needs, reach
from kube.client import Resource
from kube.errors import NotFound
from kube.selectors import Expression, NodeSelector, Term
from kube.types import (
    ObjectMeta,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
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


@table(
    "source, named",
    {
        "another network's": ({"iscsi": {"lun": 0}}, "iscsi"),
        "another driver's": ({"csi": {"driver": "ebs.csi.aws.com"}}, "csi (ebs.csi.aws.com)"),
        "of a later Kubernetes": ({"image": {"reference": "a"}}, "image"),
        "without any detail": ({"rbd": None}, "rbd"),
        "a driver's name of another interface": (
            {"flexVolume": {"driver": "com.tencent.cloud.csi.cbs"}},
            "flexVolume (com.tencent.cloud.csi.cbs)",
        ),
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


@table(
    "claims, said",
    {
        "no claim": ({}, "is of claim data-web-0, which does not exist"),
        "no volume": (
            {"data-web-0": Claim(bound_to="pv-1")},
            "is of claim data-web-0, bound to pv-1, which does not exist",
        ),
        "another driver": (
            {"data-web-0": bound(csi={"driver": "com.tencent.cloud.csi.cfs"})},
            f"is of claim data-web-0, bound to pv-1, which is of kind csi (com.tencent.cloud.csi.cfs): {MOUNTED}",
        ),
        "a disk of a node": (
            {"data-web-0": bound(local={"path": "/mnt"})},
            f"is of claim data-web-0, bound to pv-1, which is of kind local: {MOUNTED}",
        ),
        "not bound yet": (
            {"data-web-0": Claim(storage_class="fast", provisioner="ebs.csi.aws.com")},
            (
                f"is of claim data-web-0, to be made by ebs.csi.aws.com (storage class fast): {MOUNTED};"
                " bind it first if it becomes one of these"
            ),
        ),
        "not bound yet, and of no class": (
            {"data-web-0": Claim()},
            (
                f"is of claim data-web-0, to be made by an unknown provisioner (storage class none): {MOUNTED};"
                " bind it first if it becomes one of these"
            ),
        ),
    },
)
def test_a_claim_of_another_volume_is_a_reason(claims: dict[str, Claim], said: str) -> None:
    assert refused(pod(spec=CLAIMING), claims) == (f"volume data {said}",)


def to_come(provisioner: str) -> Claim:
    return Claim(storage_class="cbs", provisioner=provisioner, waits_for_consumer=True)


@table(
    "found",
    {
        "bound to such a volume": bound(csi={"driver": "com.tencent.cloud.csi.cbs"}),
        "to become a CBS disk": to_come("com.tencent.cloud.csi.cbs"),
        "to become one, by its older driver": to_come("cloud.tencent.com/qcloud-cbs"),
    },
)
def test_a_claim_of_what_super_nodes_mount_is_no_reason(found: Claim) -> None:
    assert refused(pod(spec=CLAIMING), {"data-web-0": found}) == ()


def test_a_claim_that_is_made_for_the_pod_counts_as_any_other() -> None:
    assert len(refused(pod(spec=EPHEMERAL), {"web-0-data": bound(iscsi={"lun": 0})})) == 1
    assert refused(pod(spec=EPHEMERAL), {"web-0-data": to_come("com.tencent.cloud.csi.cbs")}) == ()


def test_a_claim_whose_disk_may_be_made_anywhere_keeps_its_pod_until_it_is_bound() -> None:
    claims = {"data-web-0": Claim(storage_class="cbs", provisioner="com.tencent.cloud.csi.cbs")}

    (why,) = refused(pod(spec=CLAIMING), claims)

    assert "not bound yet" in why
    assert "WaitForFirstConsumer" in why


# Where a volume can be used

HERE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
IN_A = NodeSelector((Term(match_expressions=(Expression("zone", "In", ("a",)),)),))


@table(
    "found, name, nodes",
    {
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
def test_a_volume_says_on_which_nodes_it_can_be_used(found: Claim, name: str, nodes: NodeSelector) -> None:
    assert reach(pod(spec=CLAIMING), {"data-web-0": found}) == (Reach(name, nodes),)


@table(
    "claims",
    {
        "no claim": {},
        "a class for all nodes": {"data-web-0": Claim(storage_class="cbs")},
        "a volume for all nodes": {"data-web-0": Claim("pv-1", PersistentVolume(spec={"nfs": {}}))},
    },
)
def test_a_volume_that_says_nothing_can_be_used_on_all_nodes(claims: dict[str, Claim]) -> None:
    assert reach(pod(spec=CLAIMING), claims) == ()


class Client:
    """Storage objects by plural and name, and which of them were read."""

    def __init__(self, **objects: Mapping[str, Any]) -> None:
        self.objects, self.asked = objects, list[str]()

    def get(self, resource: Resource, name: str, namespace: str | None, *, type: object) -> Any:  # noqa: A002
        self.asked.append(f"{resource.plural} {name}")
        found = self.objects.get(resource.plural, {}).get(name)
        if found is None:
            raise NotFound(404, "NotFound", name)
        return found


def claim(**spec: Any) -> dict[str, PersistentVolumeClaim]:
    return {"data-web-0": msgspec.convert({"spec": spec}, PersistentVolumeClaim)}


CBS = {"cbs": StorageClass(provisioner="com.tencent.cloud.csi.cbs")}


def test_nothing_is_looked_up_for_a_pod_without_claims() -> None:
    assert needs(pod(spec={"volumes": [{"name": "data", "emptyDir": {}}, {"name": "x", "nfs": {}}]})) == ()


@table(
    "spec, storage, found, asked",
    {
        "a bound claim, by its volume": (
            CLAIMING,
            {
                "persistentvolumeclaims": claim(volumeName="pv-1", storageClassName="cbs"),
                "persistentvolumes": {"pv-1": volume(nfs={})},
            },
            {"data-web-0": bound(nfs={})},
            ["persistentvolumeclaims data-web-0", "persistentvolumes pv-1"],
        ),
        "a claim that lost its volume": (
            CLAIMING,
            {"persistentvolumeclaims": claim(volumeName="pv-1")},
            {"data-web-0": Claim(bound_to="pv-1")},
            ["persistentvolumeclaims data-web-0", "persistentvolumes pv-1"],
        ),
        "a claim not bound yet, by its class": (
            CLAIMING,
            {"persistentvolumeclaims": claim(storageClassName="cbs"), "storageclasses": CBS},
            {"data-web-0": Claim(storage_class="cbs", provisioner="com.tencent.cloud.csi.cbs")},
            ["persistentvolumeclaims data-web-0", "storageclasses cbs"],
        ),
        "a class that does not exist": (
            CLAIMING,
            {"persistentvolumeclaims": claim(storageClassName="gone")},
            {"data-web-0": Claim(storage_class="gone")},
            ["persistentvolumeclaims data-web-0", "storageclasses gone"],
        ),
        "a claim without a class": (
            CLAIMING,
            {"persistentvolumeclaims": claim()},
            {"data-web-0": Claim()},
            ["persistentvolumeclaims data-web-0"],
        ),
        "a claim that does not exist": (CLAIMING, {}, {}, ["persistentvolumeclaims data-web-0"]),
        "a claim that is still to be made for the pod": (
            EPHEMERAL,
            {"storageclasses": CBS},
            {"web-0-data": Claim(storage_class="cbs", provisioner="com.tencent.cloud.csi.cbs")},
            ["persistentvolumeclaims web-0-data", "storageclasses cbs"],
        ),
    },
)
def test_claims_are_looked_up_as_far_as_it_takes(
    spec: dict[str, Any], storage: dict[str, Any], found: dict[str, Claim], asked: list[str]
) -> None:
    client: Any = Client(**storage)

    assert gather(needs(pod(spec=spec)), "web", client) == found
    assert client.asked == asked
