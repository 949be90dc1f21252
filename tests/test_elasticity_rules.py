"""The rules for super nodes: each limit of the original at its edges, and all that are broken at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controllers.elasticity.filters import Request
from controllers.elasticity.pods import Pod, PodSpec
from controllers.elasticity.rules import Claim, excluded_namespace, violations
from kube.types import ObjectMeta
from settings import ElasticitySettings
from tests.tables import table
from tests.test_elasticity_gate import raw_pod

EXCLUDED = ElasticitySettings().excluded_namespaces
KEPT = "super nodes keep ports 61000-65534 for themselves"
CLAIMING = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}]}


def pod(*, spec: dict[str, Any] | None = None, **metadata: Any) -> Request:
    raw = raw_pod(metadata={"name": "web-0", **metadata}, spec=spec or {})
    return Request(Pod(msgspec.convert(raw["metadata"], ObjectMeta)), msgspec.convert(raw["spec"], PodSpec))


def refused(candidate: Request, claims: dict[str, Claim] | None = None) -> tuple[str, ...]:
    excluded = excluded_namespace(candidate.metadata.namespace, EXCLUDED)
    return (*excluded, *violations(candidate, claims or {}))


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "web", "image": "nginx"} | fields


# Whose pod it is


def test_a_daemon_pod_stays() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}

    assert refused(pod(ownerReferences=[owner])) == ("it is a pod of DaemonSet agent: super nodes run none",)


@pytest.mark.parametrize("namespace", ["kube-system", "tke-eni-ip-webhook"])
def test_a_pod_of_an_excluded_namespace_stays(namespace: str) -> None:
    [reason] = refused(pod(namespace=namespace))

    assert reason == (f"namespace {namespace} is one of excludedNamespaces (kube-system, tke-eni-ip-webhook)")


@table(
    "annotation, value",
    {
        "VPC-CNI, kept": ("tke.cloud.tencent.com/vpc-ip-claim-delete-policy", "Never"),
        "VPC-CNI, at any value": ("tke.cloud.tencent.com/vpc-ip-claim-delete-policy", ""),
        "Galaxy": ("k8s.v1.cni.galaxy.io/release-policy", "immutable"),
        "Calico": ("cni.projectcalico.org/ipAddrs", '["10.0.0.1"]'),
        "Calico without IPAM": ("cni.projectcalico.org/ipAddrsNoIpam", '["10.0.0.1"]'),
    },
)
def test_a_pod_with_a_fixed_ip_stays(annotation: str, value: str) -> None:
    reason = f"annotation {annotation} is {value!r}: super nodes give no fixed IP"
    assert refused(pod(annotations={annotation: value})) == (reason,)


@table(
    "annotations",
    {
        "Galaxy's word for no policy": {"k8s.v1.cni.galaxy.io/release-policy": ""},
        "VPC-CNI without a fixed IP": {"tke.cloud.tencent.com/networks": "tke-route-eni"},
        "what super nodes themselves retain": {"eks.tke.cloud.tencent.com/retain-ip": "true"},
    },
)
def test_other_words_of_networks_ask_for_no_fixed_ip(annotations: dict[str, str]) -> None:
    assert refused(pod(annotations=annotations)) == ()


# Ports


def sysctl(value: str, name: str = "net.ipv4.ip_local_port_range") -> Request:
    return pod(spec={"securityContext": {"sysctls": [{"name": name, "value": value}]}})


@table(
    "value, spares",
    {
        "below": ("32768 60999", True),
        "below, with other space": (" 1024\t60999 ", True),
        "above": ("65535 65535", True),
        "up to the first": ("32768 61000", False),
        "from the last": ("65534 65535", False),
        "within": ("62000 62001", False),
        "around": ("1024 65535", False),
    },
)
def test_a_local_port_range_must_spare_the_reserved_ports(value: str, spares: bool) -> None:
    said = f"sysctl net.ipv4.ip_local_port_range is {value!r}: it holds some of 61000-65534: {KEPT}"
    assert refused(sysctl(value)) == (() if spares else (said,))


@pytest.mark.parametrize(
    "value", ["", "61000", "a b", "1 2 3", "60999 32768", "-1 60999", "1024-60999", "٣ ٤"]
)
def test_a_local_port_range_that_is_none_is_a_reason(value: str) -> None:
    [reason] = refused(sysctl(value))

    assert reason == (
        f"sysctl net.ipv4.ip_local_port_range is {value!r}: no range of ports; write for example"
        ' "32768 60999"'
    )


def test_a_sysctl_may_be_written_with_slashes() -> None:
    assert len(refused(sysctl("1024 65535", "net/ipv4/ip_local_port_range"))) == 1


def test_other_sysctls_are_of_no_concern() -> None:
    assert refused(sysctl("61000 65534", "net.ipv4.ip_unprivileged_port_start")) == ()


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

    expected = (f"{kind} web: {field} asks port {port}: {KEPT}",) if 61000 <= port <= 65534 else ()
    assert refused(pod(spec={f"{kind}s": [probed]})) == expected


@pytest.mark.parametrize("handler", ["httpGet", "tcpSocket"])
def test_the_name_of_a_probes_port_is_resolved_in_its_own_container(handler: str) -> None:
    named = {"name": "health", "containerPort": 61000}
    probe = {"livenessProbe": {handler: {"port": "health"}}}
    other = container(name="other", **probe)

    reasons = refused(pod(spec={"containers": [container(ports=[named], **probe), other]}))

    assert reasons == (
        f"container web: containerPort is 61000: {KEPT}",
        f"container web: livenessProbe asks port 61000 (named health): {KEPT}",
    )


@table(
    "port, count",
    {
        "digits in quotes": ("61000", 1),
        "a name of no port": ("none", 0),
        "digits of another script": ("٦١٠٠٠", 0),
    },
)
def test_a_probes_port_may_be_text(port: str, count: int) -> None:
    probed = container(readinessProbe={"httpGet": {"port": port}})

    assert len(refused(pod(spec={"containers": [probed]}))) == count


def test_a_probe_that_runs_a_command_asks_no_port() -> None:
    probed = container(livenessProbe={"exec": {"command": ["nc", "localhost", "61000"]}})

    assert refused(pod(spec={"containers": [probed]})) == ()
