"""Every reason at once why a pod cannot run on a super node: the limits of the original, TKE Resilience.

A volume may be of a kind that super nodes do not mount, and of a claim that must be read before that is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from api.elasticity import is_daemon_pod
from controllers.elasticity.filters import Reach, Request
from kube.selectors import Expression, NodeSelector, Term
from kube.types import ObjectMeta, PersistentVolume, StorageClass, Value

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


class Claim(Value, frozen=True):
    """What was found out about a claim: the volume that it is bound to, else which class is going to make one.

    A class that does not exist has its name alone.
    """

    bound_to: str = ""
    volume: PersistentVolume | None = None
    storage_class: StorageClass = StorageClass()


def needs(pod: Request) -> dict[str, str]:
    """The claims that have to be looked up before *pod* can be judged: none for most pods.

    By name, the storage class of one that is made for the pod, and may not be there yet.
    """
    return dict(need for volume in pod.spec.volumes if (need := _need(pod, volume)))


def are_settled(wanted: Iterable[str], claims: Mapping[str, Claim]) -> bool:
    """Whether no claim is about to be made, or to be bound to who knows what."""
    found = map(claims.get, wanted)
    return all(claim and (claim.bound_to or _is_made_there(claim)) for claim in found)


def reach(claims: Mapping[str, Claim]) -> tuple[Reach, ...]:
    """The nodes that the volume of each claim can be used on, as far as they are limited."""
    return tuple(limited for name, claim in claims.items() for limited in _reach(name, claim))


def _reach(name: str, claim: Claim) -> Iterator[Reach]:
    if claim.volume:
        volume = f"volume {claim.bound_to} of claim {name}"
        required = claim.volume.spec.get("nodeAffinity", {}).get("required")
        if required is not None:
            yield Reach(volume, msgspec.convert(required, NodeSelector))
        for key, value in claim.volume.metadata.labels.items():
            if key in ZONES:
                # Nodes may have the label of now alone: to the scheduler, that of before is the same.
                names = dict.fromkeys((key, key.replace("failure-domain.beta.", "topology.")))
                yield Reach(
                    volume, _any_of([Expression(name, "In", tuple(value.split("__")))] for name in names)
                )
    elif topologies := claim.storage_class.allowed_topologies:
        terms = [
            [Expression(each.key, "In", each.values) for each in term.match_label_expressions]
            for term in topologies
        ]
        yield Reach(f"storage class {claim.storage_class.metadata.name} of claim {name}", _any_of(terms))


def _any_of(terms: Iterable[Iterable[Expression]]) -> NodeSelector:
    return NodeSelector(tuple(Term(match_expressions=tuple(expressions)) for expressions in terms))


def unmountable(pod: Request, claims: Mapping[str, Claim]) -> Iterator[str]:
    """A sentence for each volume of *pod* that keeps it off super nodes."""
    for volume in pod.spec.volumes:
        name, _ = _need(pod, volume) or ("", "")
        if why := _claim_refusal(name, claims.get(name)) if name else _refusal(volume):
            yield f"volume {volume.get('name')} {why}"


def _need(pod: Request, volume: Mapping[str, Any]) -> tuple[str, str] | None:
    if claimed := volume.get("persistentVolumeClaim"):
        return claimed.get("claimName", ""), ""
    if ephemeral := volume.get("ephemeral"):
        template = ephemeral.get("volumeClaimTemplate") or {}
        storage_class = template.get("spec", {}).get("storageClassName") or ""
        return f"{pod.metadata.name}-{volume.get('name')}", storage_class
    return None


def _claim_refusal(name: str, claim: Claim | None) -> str | None:
    if claim is None:
        return f"is of claim {name}, which does not exist"
    if claim.volume:
        why = _refusal(claim.volume.spec)
        return why and f"is of claim {name}, bound to {claim.bound_to}, which {why}"
    if claim.bound_to:
        return f"is of claim {name}, bound to {claim.bound_to}, which does not exist"
    if _is_made_there(claim):
        return None
    provisioner, storage_class = claim.storage_class.provisioner, claim.storage_class.metadata.name
    if provisioner in PROVISIONERS:
        return (
            f"is of claim {name}, which is not bound yet: storage class {storage_class} makes the disk"
            " on any node; let it wait (volumeBindingMode: WaitForFirstConsumer)"
        )
    by = f"{provisioner or 'an unknown provisioner'} (storage class {storage_class or 'none'})"
    return f"is of claim {name}, to be made by {by}: {LIMIT}; bind it first if it becomes one of these"


def _is_made_there(claim: Claim) -> bool:
    """Whether a disk will be made where the pod is."""
    by = claim.storage_class
    return by.provisioner in PROVISIONERS and by.volume_binding_mode == "WaitForFirstConsumer"


def _refusal(volume: Mapping[str, Any]) -> str | None:
    """Why a volume, given by its fields, cannot be mounted."""
    for kind in sorted(volume.keys() - NO_KIND - {*KINDS, *EPHEMERAL}):
        driver = volume[kind].get("driver", "") if isinstance(volume[kind], Mapping) else ""
        if kind != "csi" or driver != CBS_DRIVER:
            return f"is of kind {f'{kind} ({driver})' if driver else kind}: {LIMIT}"
    return None


FIRST, LAST = 61000, 65534
RESERVED = f"super nodes reserve ports {FIRST}-{LAST}"

PORT_RANGE = "net.ipv4.ip_local_port_range"

CLAIM_POLICY = "tke.cloud.tencent.com/vpc-ip-claim-delete-policy"
FIXED_IP = (
    CLAIM_POLICY,
    "k8s.v1.cni.galaxy.io/release-policy",
    "cni.projectcalico.org/ipAddrs",
    "cni.projectcalico.org/ipAddrsNoIpam",
)
"""How a pod asks for a fixed IP: of TKE's VPC-CNI, of TKE's own distribution (Galaxy), and of Calico."""


def passing(metadata: ObjectMeta, excluded: tuple[str, ...]) -> Iterator[str]:
    """A sentence for each limit that a pod may break no more: settings and annotations change."""
    if metadata.namespace in excluded:
        yield f"namespace {metadata.namespace} is one of excludedNamespaces ({', '.join(excluded)})"
    for name in FIXED_IP:
        # Without a value the others ask for nothing; of this one the original minds that it is there at all.
        if (said := metadata.annotations.get(name)) or (name == CLAIM_POLICY and said is not None):
            yield f"annotation {name} is {said[:40]!r}: super nodes do not support fixed IPs"


def violations(pod: Request, claims: Mapping[str, Claim]) -> tuple[str, ...]:
    """A sentence for each limit that *pod* breaks, with the field, its value and the limit.

    *claims* are those of `needs`, by name, as far as they exist.
    """
    return (*_violations(pod), *unmountable(pod, claims))


def _violations(pod: Request) -> Iterator[str]:
    if (owner := pod.metadata.controller) and is_daemon_pod(pod.metadata):
        yield f"it is a pod of DaemonSet {owner.name}: super nodes run no DaemonSets"
    if claims := ", ".join(claim["name"] for claim in pod.spec.resource_claims):
        yield f"it has resource claims ({claims}): super nodes have no devices for them"
    for sysctl in pod.spec.security_context.sysctls:
        # Kubernetes takes both separators.
        if sysctl.name.replace("/", ".") == PORT_RANGE and (why := _range_refusal(sysctl.value)):
            yield f"sysctl {PORT_RANGE} is {sysctl.value[:40]!r}: {why}"
    for where, container in pod.spec.named_containers:
        for port in container.ports:
            for field, number in (("containerPort", port.container_port), ("hostPort", port.host_port)):
                if FIRST <= number <= LAST:
                    yield f"{where}: {field} is {number}: {RESERVED}"
        for field, probe in container.probes.items():
            number = container.number_of(probe.port)
            if FIRST <= number <= LAST:
                named = f" (named {probe.port})" if number != probe.port else ""
                yield f"{where}: {field} uses port {number}{named}: {RESERVED}"


def _range_refusal(value: str) -> str | None:
    ports = re.fullmatch(r"\s*([0-9]{1,5})\s+([0-9]{1,5})\s*", value)
    if not ports or int(ports[1]) > int(ports[2]):
        return 'no range of ports; write for example "32768 60999"'
    is_reserved = int(ports[1]) <= LAST and int(ports[2]) >= FIRST
    return f"it holds some of {FIRST}-{LAST}: {RESERVED}" if is_reserved else None
