"""Which volumes of a pod a super node cannot mount, by kind, and which claims must be read to know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from controllers.elasticity.filters import Reach
from controllers.elasticity.pod_spec import Candidate
from kube.selectors import Expression, NodeSelector, Term
from kube.types import PersistentVolume, TopologyRequirement, TopologyTerm

KINDS = ("nfs", "cephfs", "hostPath", "qcloudCbs")
"""The original's list; qcloudCbs is the field of TKE's own distribution for a CBS disk."""
CBS_DRIVER = "com.tencent.cloud.csi.cbs"
PROVISIONERS = (CBS_DRIVER, "cloud.tencent.com/qcloud-cbs")
"""Who makes CBS disks, as CSI driver and as the provisioner before it."""
LIMIT = "super nodes mount nfs, cephfs, hostPath and CBS disks only"

ZONES = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
"""Labels of a volume that say where it is; several zones are joined by two underscores."""

EPHEMERAL = ("configMap", "downwardAPI", "emptyDir", "gitRepo", "projected", "secret")
"""What needs no persistent volume."""

NO_KIND = {
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "name",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
}
"""The fields of a volume, in a pod or by itself, that do not say what kind it is."""


@dataclass(frozen=True)
class Need:
    """A claim to look up. *storage_class* is that of a claim which is made for the pod, and may not be there yet."""

    volume: str
    claim: str
    storage_class: str = ""


@dataclass(frozen=True)
class Claim:
    """What was found out about a claim: the volume that it is bound to, else who is going to make one."""

    bound_to: str = ""
    volume: PersistentVolume | None = None
    storage_class: str = ""
    provisioner: str = ""
    waits_for_consumer: bool = False
    """Whether the volume is made for the node of the pod."""
    topologies: tuple[TopologyTerm, ...] = ()
    """Where the storage class makes volumes, when it says so."""


def needs(pod: Candidate) -> tuple[Need, ...]:
    """The claims that have to be looked up before *pod* can be judged: none for most pods."""
    return tuple(need for volume in pod.spec.volumes if (need := _need(pod, volume)))


def are_settled(wanted: Iterable[Need], claims: Mapping[str, Claim]) -> bool:
    """Whether no claim is about to be made, or to be bound to who knows what."""
    found = [claims.get(need.claim) for need in wanted]
    return all(claim and (claim.bound_to or _is_made_there(claim)) for claim in found)


def reach(pod: Candidate, claims: Mapping[str, Claim]) -> tuple[Reach, ...]:
    """The nodes that each volume of *pod* can be used on, as far as they are limited."""
    found = [(need.claim, claims.get(need.claim)) for need in needs(pod)]
    return tuple(each for name, claim in found if claim for each in _reach(name, claim))


def unmountable(pod: Candidate, claims: Mapping[str, Claim]) -> Iterator[str]:
    """A sentence for each volume of *pod* that keeps it off super nodes."""
    for volume in pod.spec.volumes:
        need = _need(pod, volume)
        why = _claim_refused(need.claim, claims.get(need.claim)) if need else _refused(volume)
        if why:
            yield f"volume {volume.get('name')} {why}"


def _need(pod: Candidate, volume: Mapping[str, Any]) -> Need | None:
    name = volume.get("name", "")
    if claimed := volume.get("persistentVolumeClaim"):
        return Need(name, claimed.get("claimName", ""))
    if ephemeral := volume.get("ephemeral"):
        template = ephemeral.get("volumeClaimTemplate") or {}
        storage_class = template.get("spec", {}).get("storageClassName") or ""
        return Need(name, f"{pod.metadata.name}-{name}", storage_class)
    return None


def _claim_refused(name: str, claim: Claim | None) -> str:
    if claim is None:
        return f"is of claim {name}, which does not exist"
    if claim.volume:
        why = _refused(claim.volume.spec)
        return why and f"is of claim {name}, bound to {claim.bound_to}, which {why}"
    if claim.bound_to:
        return f"is of claim {name}, bound to {claim.bound_to}, which does not exist"
    if _is_made_there(claim):
        return ""
    if claim.provisioner in PROVISIONERS:
        return (
            f"is of claim {name}, which is not bound yet: storage class {claim.storage_class} makes the disk"
            " on any node; let it wait (volumeBindingMode: WaitForFirstConsumer)"
        )
    by = f"{claim.provisioner or 'an unknown provisioner'} (storage class {claim.storage_class or 'none'})"
    return f"is of claim {name}, to be made by {by}: {LIMIT}; bind it first if it becomes one of these"


def _is_made_there(claim: Claim) -> bool:
    """Whether a disk will be made where the pod is."""
    return claim.provisioner in PROVISIONERS and claim.waits_for_consumer


def _reach(name: str, claim: Claim) -> Iterator[Reach]:
    if claim.volume:
        volume = f"volume {claim.bound_to} of claim {name}"
        required = claim.volume.spec.get("nodeAffinity", {}).get("required")
        if required is not None:
            yield Reach(volume, msgspec.convert(required, NodeSelector))
        zones = {key: value for key, value in claim.volume.metadata.labels.items() if key in ZONES}
        for key, value in zones.items():
            yield Reach(volume, _any_of([[Expression(key, "In", tuple(value.split("__")))]]))
    elif claim.topologies:
        terms = [[_expression(each) for each in term.match_label_expressions] for term in claim.topologies]
        yield Reach(f"storage class {claim.storage_class} of claim {name}", _any_of(terms))


def _any_of(terms: Iterable[Iterable[Expression]]) -> NodeSelector:
    return NodeSelector(tuple(Term(match_expressions=tuple(each)) for each in terms))


def _expression(requirement: TopologyRequirement) -> Expression:
    return Expression(requirement.key, "In", requirement.values)


def _refused(volume: Mapping[str, Any]) -> str:
    """Why a volume, given by its fields, cannot be mounted, or nothing."""
    for kind in sorted(volume.keys() - NO_KIND - {*KINDS, *EPHEMERAL}):
        driver = volume[kind].get("driver", "") if isinstance(volume[kind], Mapping) else ""
        if kind != "csi" or driver != CBS_DRIVER:
            return f"is of kind {f'{kind} ({driver})' if driver else kind}: {LIMIT}"
    return ""
