"""The page in the cluster: it answers what a proxy forwards, with the chart's own permissions, and only reads."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from api.ingress_daemonset import INGRESS_DAEMONSETS
from dev.lab import binaries, install
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from dev.lab.waiting import stretch, until
from kube.client import Client, Resource
from kube.resources import PODS
from tests.cluster import workloads

pytestmark = pytest.mark.nightly

NAME = "drawbridge.example.com"
VALUES: dict[str, Any] = {
    "replicaCount": 1,
    "controllers": {"replicaCount": 1},
    "ipReservation": workloads.RESERVATION | {"duration": workloads.STORED_SOON},
    "ingressDaemonSet": {"enabled": True},
    "dashboard": {"enabled": True, "from": [{"podSelector": {}}], "allowedHosts": [NAME]},
}
PATHS = ("/", "/reservations", "/addresses", "/elasticity", "/rollouts")
SECONDS = 60


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running(calico=None, chart=False, nodes=1, kwok_nodes=1, policy=True) as up:
        up.kubectl("apply", "--server-side", "-f", str(binaries.calico_crds()))
        install.install_chart(up, VALUES)
        yield up


@contextmanager
def asked(lab: Lab, path: str, host: str = NAME, method: str = "GET") -> Iterator[http.client.HTTPResponse]:
    """As a proxy forwards it."""
    with closing(http.client.HTTPConnection(address_of(lab), 8090, timeout=SECONDS * stretch())) as proxy:
        proxy.request(method, path, headers={"Host": host})
        yield proxy.getresponse()


def address_of(lab: Lab) -> str:
    selector = "app.kubernetes.io/component=dashboard"
    [pod] = lab.client.list(PODS, install.NAMESPACE, label_selector=selector).items
    return str(pod["status"]["podIP"])


def text(lab: Lab, path: str) -> str:
    with asked(lab, path) as answer:
        found = answer.read().decode()
        assert answer.status == 200, found
    return found


@pytest.mark.promise
def test_a_proxy_gets_each_page_and_a_reservation_is_live(lab: Lab) -> None:
    """Nothing is missing for want of a permission; that nothing else is asked for, the audit log shows."""
    redis = workloads.reserved_namespace(lab.client, "redis")
    pod = workloads.running_pod(lab, redis, "a")
    [address] = pod.status.addresses
    manifest = {
        "apiVersion": INGRESS_DAEMONSETS.api_version,
        "kind": "IngressDaemonSet",
        "metadata": {"name": "web"},
        "spec": {"template": workloads.pod_template({"app": "web"})},
    }
    lab.client.create(INGRESS_DAEMONSETS, manifest, redis)

    lab.client.delete(PODS, "a", redis)
    until(lambda: address in text(lab, "/live/reservations"), SECONDS, "the page to have it")

    node = str(pod.spec.node_name)
    objects = (f"pod/{redis}/a", f"ip/{address}", f"node/{node}", f"ingressdaemonset/{redis}/web")
    for path in (*PATHS, *(f"/explain/{each}" for each in objects)):
        found = text(lab, path)
        assert "cannot be shown" not in found
        assert "not readable" not in found
        assert "missing permission" not in found
    assert '<th scope="row">dashboard</th>' in text(lab, "/"), "the status counts it among the programs"


def test_calicos_own_api_group_is_read_too(lab: Lab) -> None:
    in_both_groups(lab.client)

    found = text(lab, "/reservations")
    assert "cannot be shown" not in found
    assert "not known" not in found
    assert "There is no pool." in found


def in_both_groups(client: Client) -> None:
    """As where Calico's API server is installed."""
    install.install_crds(client, "projectcalico.org/v3")
    for plural in ("ippools", "ipamblocks"):
        definition = client.get(install.DEFINITIONS, f"{plural}.crd.projectcalico.org")
        spec = definition["spec"] | {"group": "projectcalico.org"}
        spec["versions"] = [spec["versions"][0] | {"name": "v3"}]
        metadata = {"name": f"{plural}.projectcalico.org"}
        client.create(install.DEFINITIONS, {**definition, "metadata": metadata, "spec": spec, "status": {}})
        served = Resource("projectcalico.org", "v3", plural, namespaced=False)
        until(lambda: client.serves(served), SECONDS, f"{plural} to be served")  # noqa: B023
