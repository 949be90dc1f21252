"""What a super node of ours has, and which drift of it is corrected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from api.elasticity import TAINT
from controllers.elasticity.gpus import GPU, gpu_labels, gpu_taints
from controllers.elasticity.tiers import TIER, is_tier_taint, tier_labels, tier_taints
from kube.types import INSTANCE_TYPE, SUPER_NODE, Node, Taint
from settings import ElasticitySettings
from settings.elasticity import Subnet

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "drawbridge"
SUBNET_ID = "eks.tke.cloud.tencent.com/subnet-id"
RESOLV_CONF = "eks.tke.cloud.tencent.com/resolv-conf"
ZONE_NAME = "eks.tke.cloud.tencent.com/zone-name"
VERSION = "eks.tke.cloud.tencent.com/version"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
CBS_ZONE = "topology.com.tencent.cloud.csi.cbs/zone"
"""By this label, volumes of the CBS driver name the zone of their disk."""
OS, ARCH, HOSTNAME = "kubernetes.io/os", "kubernetes.io/arch", "kubernetes.io/hostname"
RETIRED_AT = "drawbridge.io/retired-at"
"""When a super node stopped taking pods because its subnet is not configured any more."""

GIVEN = (ZONE, VERSION, REGION, CBS_ZONE)
"""Labels that are written once, and again for another zone: eklet and users may set others."""
OF_MACHINE = (OS, ARCH, HOSTNAME)
"""Labels that are written once."""
OF_SETTINGS = (TIER, GPU)
"""Labels that go when the settings ask for none."""


def name_of(subnet: Subnet) -> str:
    return f"eklet-{subnet.id}"


def manifest(subnet: Subnet, settings: ElasticitySettings) -> dict[str, Any]:
    """As the original's chart registers it, without its finalizer, with the well-known labels and our own."""
    resolv_conf = {RESOLV_CONF: settings.resolv_conf} if settings.resolv_conf else {}
    labels = {
        INSTANCE_TYPE: SUPER_NODE,
        ZONE_NAME: subnet.zone,
        VERSION: "v2",
        MANAGED_BY: MANAGER,
        **_well_known(subnet, settings),
        **tier_labels(subnet.tier, settings.tiers),
        **gpu_labels(gpu=subnet.gpu, used=settings.gpus),
    }
    metadata = {
        "name": name_of(subnet),
        "labels": labels,
        "annotations": {SUBNET_ID: subnet.id, **resolv_conf},
    }
    taints = (TAINT, *tier_taints(subnet.tier, settings.tiers), *gpu_taints(gpu=subnet.gpu))
    spec = {"taints": [msgspec.to_builtins(taint) for taint in taints]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}


def _well_known(subnet: Subnet, settings: ElasticitySettings) -> dict[str, str]:
    """What a kubelet and a cloud provider give a node: selectors and volumes of usual charts ask for these."""
    region = {REGION: settings.region} if settings.region else {}
    return {
        ZONE: subnet.zone,
        CBS_ZONE: subnet.zone,
        OS: "linux",
        ARCH: "amd64",
        HOSTNAME: name_of(subnet),
        **region,
    }


def difference(node: Node, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch that makes *node* what is *wanted*, and leaves all else."""
    annotations: dict[str, Any] = _other(node.metadata.annotations, wanted["metadata"]["annotations"])
    spec: dict[str, Any] = {}
    if RETIRED_AT in node.metadata.annotations:
        annotations[RETIRED_AT], spec["unschedulable"] = None, None
    taints = _taints(node.spec.taints, msgspec.convert(wanted["spec"]["taints"], tuple[Taint, ...]))
    if taints != node.spec.taints:
        spec["taints"] = [msgspec.to_builtins(taint) for taint in taints]
    held, labels = node.metadata.labels, wanted["metadata"]["labels"]
    gone = {key: None for key in OF_SETTINGS if key in held and key not in labels}
    labels = {**_labels(held, labels), **gone}
    metadata = _given(labels=labels, annotations=annotations)
    return _given(metadata=metadata, spec=spec)


def _taints(held: tuple[Taint, ...], wanted: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Those of others stay, and of ours what is *wanted*."""
    names = {_name(taint) for taint in wanted}
    kept = tuple(taint for taint in held if _name(taint) in names or not _is_of_settings(taint))
    missing = names.difference(map(_name, kept))
    return (*kept, *(taint for taint in wanted if _name(taint) in missing))


def _is_of_settings(taint: Taint) -> bool:
    return is_tier_taint(taint) or taint.key == GPU


def _name(taint: Taint) -> tuple[str, str]:
    return taint.key, taint.effect


def _labels(held: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    other = _other(held, wanted)
    kept = OF_MACHINE if ZONE_NAME in other else (*OF_MACHINE, *GIVEN)
    return {key: value for key, value in other.items() if key not in kept or key not in held}


def _other(held: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in wanted.items() if held.get(key) != value}


def _given(**parts: dict[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in parts.items() if part}
