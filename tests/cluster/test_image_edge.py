"""In the image, the programs do for an IngressDaemonSet what they do in a cluster, by the mounted ServiceAccounts."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from kube.client import Resource
from lab import install
from lab.image.stage import Stage
from lab.session import Lab
from lab.waiting import until
from tests.cluster.image import NAME, SECONDS, WEBHOOK, World, await_ready, get, served, world
from tests.cluster.ingress_daemonset import DAEMONSETS, INGRESS_DAEMONSETS, Raw
from tests.cluster.ingress_daemonset_checkers import told_by
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.ingress_daemonset_history import recording
from tests.server import trusting
from webhook import smoke_check
from webhook.ingress_daemonset import DEFAULTS_PATH, RULES_PATH

PORT = 10080
DEFINITION = install.CHART / "files" / "ingressdaemonsets.yaml"
SETTINGS = {"ingressDaemonSet": {"enabled": True, "healthChecker": {"image": "drawbridge:1"}}}
ACCOUNTS = Resource("", "v1", "serviceaccounts")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False)


@pytest.fixture
def edge(bare_lab: Lab) -> Iterator[Edge]:
    """A node, in a lab on which nothing is installed but the definition."""
    bare_lab.kubectl("apply", "-f", str(DEFINITION))
    bare_lab.wait(
        lambda: bare_lab.client.serves(INGRESS_DAEMONSETS), SECONDS, "IngressDaemonSets to be served"
    )
    with recording(bare_lab.client) as record:
        edge = Edge(bare_lab, record, "a")
        yield edge
        edge.leave("a")


@pytest.fixture
def ours(edge: Edge) -> Iterator[str]:
    """A ServiceAccount that may do everything: what ours may do is another matter."""
    name, client = f"drawbridge-{edge.token}", edge.client
    client.create(ACCOUNTS, {"metadata": {"name": name}}, edge.namespace)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": edge.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    client.create(BINDINGS, {"metadata": {"name": name}, "subjects": [subject], "roleRef": role})
    yield f"{edge.namespace}/{name}"
    client.delete(BINDINGS, name)


def test_an_ingress_daemonset_is_admitted_kept_and_answered_for(
    image: Stage, address: str, tmp_path: Path, edge: Edge, ours: str
) -> None:
    lease = {"leaderElection": {"resourceNamespace": edge.namespace}}
    here = world(image, tmp_path, address, **SETTINGS, **lease)
    manifest = edge.manifest("web", healthCheckNodePorts=[PORT])

    with served(here, here.in_a_pod(edge.lab, ours)):
        await_ready(here)
        admitted = admitted_by(here, manifest)
        edge.client.create(INGRESS_DAEMONSETS, admitted, edge.namespace)
        second = reviewed(here, RULES_PATH, edge.manifest("second", healthCheckNodePorts=[PORT]))
        taken = f"{PORT} is taken on node {edge.node_name('a')} by IngressDaemonSet {edge.namespace}/web"
        assert (second["allowed"], taken in second["status"]["message"]) == (False, True)

    controllers = ("python", "-m", "controllers")
    with served(here, here.in_a_pod(edge.lab, ours, *controllers, POD_NAMESPACE=edge.namespace)):
        edge.settle("a")
        assert_answered_for(here, edge)
        edge.client.delete(INGRESS_DAEMONSETS, "web", edge.namespace)
        edge.wait(edge.is_gone, "the IngressDaemonSet to be gone")
    assert list(here.tmp.iterdir()) == []


def admitted_by(world: World, manifest: Raw) -> Raw:
    """*manifest* as it is stored."""
    answer = reviewed(world, DEFAULTS_PATH, manifest)
    patch = json.loads(base64.b64decode(answer["patch"]))
    admitted: Raw = jsonpatch.apply_patch(manifest, patch)
    assert admitted["spec"]["selector"] == {"matchLabels": {"app": "web"}}
    assert reviewed(world, RULES_PATH, admitted)["allowed"]
    return admitted


def reviewed(world: World, path: str, manifest: Raw) -> dict[str, Any]:
    """What the webhook server answers the API server about a new one."""
    request = {"uid": "u-1", "operation": "CREATE", "object": manifest}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    status, body = smoke_check.post(
        (world.address, WEBHOOK), NAME, trusting(), path, json.dumps(review).encode()
    )
    assert status == 200, body
    answer: dict[str, Any] = json.loads(body)["response"]
    return answer


def assert_answered_for(world: World, edge: Edge) -> None:
    """By the health checker that its DaemonSet describes, which may do no more than it must."""
    [daemon_set] = edge.wait(lambda: edge.client.list(DAEMONSETS, edge.namespace).items, "its DaemonSet")
    [container] = daemon_set["spec"]["template"]["spec"]["containers"]
    checker = world.in_a_pod(
        edge.lab, f"{edge.namespace}/default", *container["command"], **told_by(container, edge, "a")
    )
    with served(world, checker, PORT):
        until(
            lambda: get(world, PORT) == (200, "ok\n"), SECONDS, "the load balancer to hear that all is well"
        )
