"""The rules for super nodes: each limit of the original at its edges, and all that are broken at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controllers.elasticity.filters import Reach, Request
from controllers.elasticity.pods import Pod, PodSpec
from controllers.elasticity.rules import Claim, passing, reach, violations
from kube.selectors import Expression, NodeSelector, Term, selects
from kube.types import ObjectMeta, PersistentVolume, StorageClass, TopologyRequirement, TopologyTerm
from settings import ElasticitySettings
from tests.pages import ROOT
from tests.tables import table
from tests.test_elasticity_gate import raw_pod

EXCLUDED = ElasticitySettings().excluded_namespaces
KEPT = "super nodes reserve ports 61000-65534"
FIXED = "super nodes do not support fixed IPs"
CLAIMING = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}]}


def pod(*, spec: dict[str, Any] | None = None, **metadata: Any) -> Request:
    raw = raw_pod(metadata={"name": "web-0", **metadata}, spec=spec or {})
    return Request(Pod(msgspec.convert(raw["metadata"], ObjectMeta)), msgspec.convert(raw["spec"], PodSpec))


def refused(candidate: Request, claims: dict[str, Claim] | None = None) -> tuple[str, ...]:
    return (*passing(candidate.metadata, EXCLUDED), *violations(candidate, claims or {}))


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "web", "image": "nginx"} | fields


AGENT = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}
LISTED = "is one of excludedNamespaces (kube-system, tke-eni-ip-webhook)"
VPC_CNI, GALAXY = "tke.cloud.tencent.com/vpc-ip-claim-delete-policy", "k8s.v1.cni.galaxy.io/release-policy"
ADDRESSES = "cni.projectcalico.org/ipAddrs"


@table(
    "metadata, reason",
    {
        "of a DaemonSet": (
            {"ownerReferences": [AGENT]},
            "it is a pod of DaemonSet agent: super nodes run no DaemonSets",
        ),
        "of an excluded namespace": ({"namespace": "kube-system"}, f"namespace kube-system {LISTED}"),
        "of the other": ({"namespace": "tke-eni-ip-webhook"}, f"namespace tke-eni-ip-webhook {LISTED}"),
        "VPC-CNI, kept": ({"annotations": {VPC_CNI: "Never"}}, f"annotation {VPC_CNI} is 'Never': {FIXED}"),
        "VPC-CNI, at any value": ({"annotations": {VPC_CNI: ""}}, f"annotation {VPC_CNI} is '': {FIXED}"),
        "Galaxy": ({"annotations": {GALAXY: "immutable"}}, f"annotation {GALAXY} is 'immutable': {FIXED}"),
        "Calico": ({"annotations": {ADDRESSES: "[]"}}, f"annotation {ADDRESSES} is '[]': {FIXED}"),
        "Calico without IPAM": (
            {"annotations": {f"{ADDRESSES}NoIpam": "[]"}},
            f"annotation {ADDRESSES}NoIpam is '[]': {FIXED}",
        ),
        "Galaxy's word for no policy": ({"annotations": {GALAXY: ""}}, ""),
        "VPC-CNI without a fixed IP": (
            {"annotations": {"tke.cloud.tencent.com/networks": "tke-route-eni"}},
            "",
        ),
        "what super nodes retain": ({"annotations": {"eks.tke.cloud.tencent.com/retain-ip": "true"}}, ""),
    },
)
def test_whose_pod_stays_and_with_which_fixed_ip(metadata: dict[str, Any], reason: str) -> None:
    assert refused(pod(**metadata)) == ((reason,) if reason else ())


def test_a_pod_with_claims_of_devices_stays() -> None:
    claim = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}

    assert refused(pod(spec={"resourceClaims": [claim]})) == (
        "it has resource claims (gpu): super nodes have no devices for them",
    )


# Ports

LOCAL_RANGE = "net.ipv4.ip_local_port_range"
HOLDS = f"it holds some of 61000-65534: {KEPT}"
IS_NONE = 'no range of ports; write for example "32768 60999"'


@table(
    "value, why",
    {
        "below": ("32768 60999", ""),
        "below, with other space": (" 1024\t60999 ", ""),
        "above": ("65535 65535", ""),
        "up to the first": ("32768 61000", HOLDS),
        "from the last": ("65534 65535", HOLDS),
        "within": ("62000 62001", HOLDS),
        "around": ("1024 65535", HOLDS),
        **{
            repr(none): (none, IS_NONE)
            for none in ("", "61000", "a b", "1 2 3", "60999 32768", "-1 60999", "1024-60999", "٣ ٤")
        },
    },
)
def test_a_local_port_range_must_spare_the_reserved_ports(value: str, why: str) -> None:
    """Kubernetes takes both separators; another sysctl is of no concern."""
    for name in (LOCAL_RANGE, LOCAL_RANGE.replace(".", "/"), "net.ipv4.ip_unprivileged_port_start"):
        found = refused(pod(spec={"securityContext": {"sysctls": [{"name": name, "value": value}]}}))
        is_judged = why and "local_port" in name
        assert found == ((f"sysctl {LOCAL_RANGE} is {value!r}: {why}",) if is_judged else ())


@pytest.mark.parametrize("port", [60999, 61000, 65534, 65535])
@pytest.mark.parametrize("field", ["containerPort", "hostPort"])
@pytest.mark.parametrize("kind", ["container", "initContainer"])
def test_a_port_of_a_container_must_not_be_reserved(kind: str, field: str, port: int) -> None:
    listening = container(ports=[{"containerPort": 80, "hostPort": 8080} | {field: port}])

    expected = (f"{kind} web: {field} is {port}: {KEPT}",) if 61000 <= port <= 65534 else ()
    assert refused(pod(spec={f"{kind}s": [listening]})) == expected


HANDLERS = ["httpGet", "tcpSocket", "grpc"]


@pytest.mark.parametrize("port", [60999, 61000, 65534, 65535])
@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("field", ["livenessProbe", "readinessProbe", "startupProbe"])
@pytest.mark.parametrize("kind", ["container", "initContainer"])
def test_the_port_of_a_probe_must_not_be_reserved(kind: str, field: str, handler: str, port: int) -> None:
    probed = container(**{field: {handler: {"port": port}}})

    expected = (f"{kind} web: {field} uses port {port}: {KEPT}",) if 61000 <= port <= 65534 else ()
    assert refused(pod(spec={f"{kind}s": [probed]})) == expected


@pytest.mark.parametrize("handler", ["httpGet", "tcpSocket"])
def test_the_name_of_a_probes_port_is_resolved_in_its_own_container(handler: str) -> None:
    named = {"name": "health", "containerPort": 61000}
    probe = {"livenessProbe": {handler: {"port": "health"}}}
    other = container(name="other", **probe)

    reasons = refused(pod(spec={"containers": [container(ports=[named], **probe), other]}))

    assert reasons == (
        f"container web: containerPort is 61000: {KEPT}",
        f"container web: livenessProbe uses port 61000 (named health): {KEPT}",
    )


@table(
    "probe, count",
    {
        "digits in quotes": ({"httpGet": {"port": "61000"}}, 1),
        "a name of no port": ({"httpGet": {"port": "none"}}, 0),
        "digits of another script": ({"httpGet": {"port": "٦١٠٠٠"}}, 0),
        "a command": ({"exec": {"command": ["nc", "localhost", "61000"]}}, 0),
    },
)
def test_a_probes_port_may_be_text(probe: dict[str, Any], count: int) -> None:
    probed = container(readinessProbe=probe)

    assert len(refused(pod(spec={"containers": [probed]}))) == count


# Volumes that super nodes mount, and those that keep a pod local

MOUNTED = "super nodes mount nfs, cephfs, hostPath and CBS disks only"


# Volumes in the pod itself


KEEPING = ("nfs", "cephfs", "hostPath", "qcloudCbs")
PASSING = ("emptyDir", "configMap", "secret", "projected", "downwardAPI", "gitRepo")


@pytest.mark.parametrize("kind", [*KEEPING, *PASSING])
def test_a_volume_that_super_nodes_mount_is_no_reason(kind: str) -> None:
    assert refused(pod(spec={"volumes": [{"name": "data", kind: {}}]})) == ()


def test_the_page_names_each_volume_of_a_pod_that_super_nodes_mount() -> None:
    page = (ROOT / "docs/reference/elasticity.md").read_text()
    assert [kind for kind in PASSING if f"`{kind}`" not in page] == []


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


def to_come(provisioner: str = "", name: str = "cbs", **fields: Any) -> Claim:
    """By a storage class that waits for the pod, unless *fields* say something else."""
    given = {"volume_binding_mode": "WaitForFirstConsumer", **fields}
    return Claim(storage_class=StorageClass(ObjectMeta(name=name), provisioner, **given))


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
        "whose disk may be made anywhere": (
            to_come(CBS_DRIVER, volume_binding_mode="Immediate"),
            f"which is {ANYWHERE}",
        ),
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
        "a class for all nodes": (to_come(), "", None),
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
            to_come(allowed_topologies=(TopologyTerm((TopologyRequirement("zone", ("a",)),)),)),
            "storage class cbs of claim data-web-0",
            IN_A,
        ),
    },
)
def test_a_volume_says_on_which_nodes_it_can_be_used(
    found: Claim | None, name: str, nodes: NodeSelector | None
) -> None:
    assert reach({"data-web-0": found} if found else {}) == ((Reach(name, nodes),) if nodes else ())


def test_a_volume_that_names_its_zone_by_the_label_of_before_is_reached_from_nodes_with_the_one_of_now() -> (
    None
):
    labels = {"failure-domain.beta.kubernetes.io/zone": "a__b"}
    volume = PersistentVolume(ObjectMeta(name="pv-1", labels=labels), {"nfs": {}})
    (limited,) = reach({"data-web-0": Claim("pv-1", volume)})

    zone = "topology.kubernetes.io/zone"
    assert selects(limited.nodes, "node", {zone: "b"})
    assert selects(limited.nodes, "node", labels | {"failure-domain.beta.kubernetes.io/zone": "a"})
    assert not selects(limited.nodes, "node", {zone: "c"})
