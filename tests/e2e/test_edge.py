"""Clients of a load balancer in front of an IngressDaemonSet see no failure while it is updated."""

from __future__ import annotations

import http.server
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dev.lab.node.network import CONTROL_PLANE
from dev.lab.waiting import until
from kube.errors import KubeError
from kube.resources import NAMESPACES, SERVICES
from tests.cluster.ingress_daemonset import EDGE, Raw, by_deployment, detaching
from tests.cluster.ingress_daemonset_edge import Edge
from tests.e2e.client import Report
from tests.e2e.cluster import EDGE_IMAGE
from tests.e2e.real import Real
from tests.e2e.traffic import balancing, log_of, measured, requests

ROLLOUT, CONTROL, OUTAGE = 30080, 30081, 30082
"""One port for each test: nodes remember for minutes to which pods they led the connections of another test."""
SERVICE_HEALTH_PORT, HEALTH_PORT = 30090, 10081
FRONT, NAIVE_FRONT, NAIVE_CHECK = 18080, 18081, 18082
OUTAGE_SECONDS = 60
ROUTED_SECONDS = 5
"""After so many seconds kube-proxy leads the node's port to pods that are ready."""
AT_REST = {"maxUnavailableNodes": 1}
"""A rollout that no load balancer is prepared for."""
PREPARED = {**detaching(1, **by_deployment(5)), "attachGracePeriodSeconds": 5}
"""The load balancer needs two seconds to detach a node, and three to attach it."""


def container(version: str) -> dict[str, Any]:
    return {
        "name": "proxy",
        "image": EDGE_IMAGE,
        "env": [{"name": "VERSION", "value": version}],
        # A busy machine answers late.
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 20},
    }


def service(name: str, port: int) -> dict[str, Any]:
    """As clouds create them; the load balancer is ours."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "type": "LoadBalancer",
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": SERVICE_HEALTH_PORT,
            "selector": {"app": name},
            "ports": [{"port": 80, "targetPort": 8080, "nodePort": port}],
        },
    }


@contextmanager
def served(cluster: Real, rolling: dict[str, Any], port: int) -> Iterator[Edge]:
    """Pods of an IngressDaemonSet on all nodes, behind a Service, with health checkers on each node."""
    until(lambda: not earlier(cluster), 180, "the ports of earlier tests to be free", every=0.5)
    edge = Edge(cluster)
    cluster.kubectl("label", "node", *cluster.workers, f"{EDGE}={edge.token}")
    try:
        edge.create(
            pod={"containers": [container("1")]},
            rolling=rolling,
            healthCheckNodePorts=[HEALTH_PORT],
            minReadySeconds=ROUTED_SECONDS,
        )
        edge.client.create(SERVICES, service("web", port), edge.namespace)
        edge.settle(*cluster.workers, image=EDGE_IMAGE)
        edge.wait(lambda: all_healthy(cluster), "all nodes to be healthy")
        yield edge
    finally:
        cluster.kubectl("delete", "namespace", edge.namespace, "--wait=false")
        cluster.kubectl("label", "node", *cluster.workers, f"{EDGE}-")


def earlier(cluster: Real) -> list[dict[str, Any]]:
    """Namespaces that are on their way out."""
    return [each for each in cluster.client.list(NAMESPACES).items if "deletionTimestamp" in each["metadata"]]


def all_healthy(cluster: Real) -> bool:
    return {cluster.status(node, HEALTH_PORT) for node in cluster.workers} == {"200"}


def targets(cluster: Real, port: int) -> dict[str, str]:
    return {node: f"{cluster.address(node)}:{port}" for node in cluster.workers}


def roll_out(cluster: Real, edge: Edge, version: str) -> None:
    edge.change(template={"spec": {"containers": [container(version)]}})
    what = f"all pods to be of version {version}"
    edge.wait(lambda: all(version_of(pod) == version for pod in edge.pods()), what)
    edge.settle(*cluster.workers, image=EDGE_IMAGE)
    edge.wait(lambda: all_healthy(cluster), "all nodes to be healthy again")


def version_of(pod: dict[str, Any]) -> str:
    return str(pod["spec"]["containers"][0]["env"][0]["value"])


def test_no_request_fails_while_pods_are_replaced(real_nodes: Real) -> None:
    report = rolled_out(real_nodes, PREPARED, ROLLOUT)

    assert report.failed == 0, log_of(real_nodes.home, FRONT)
    assert report.answers["200"] > 1000


def test_requests_fail_while_pods_are_replaced_on_nodes_that_are_not_detached(real_nodes: Real) -> None:
    """The control of the test above."""
    assert rolled_out(real_nodes, AT_REST, CONTROL).failed > 0


def rolled_out(cluster: Real, rolling: Raw, port: int) -> Report:
    """What became of requests while all pods were replaced."""
    with (
        served(cluster, rolling, port) as edge,
        balancing(cluster.home, FRONT, targets(cluster, port), f"port {HEALTH_PORT}"),
    ):

        def measure(attempt: int) -> Report:
            with requests(FRONT) as reports:
                roll_out(cluster, edge, str(attempt + 2))
            return reports[0]

        return measured(measure)


@pytest.mark.usefixtures("naive_check")
def test_no_request_fails_while_the_api_server_is_down_for_a_minute(real_nodes: Real) -> None:
    """The control is a health check that asks the API server each time: it takes every node out of service."""
    naive = f"addr {CONTROL_PLANE} port {NAIVE_CHECK}"
    control = Report()

    def measure(_attempt: int) -> Report:
        with requests(FRONT) as reports, requests(NAIVE_FRONT) as controls:
            outage(real_nodes)
        control.answers.update(controls[0].answers)
        return reports[0]

    with (
        served(real_nodes, PREPARED, OUTAGE),
        balancing(real_nodes.home, FRONT, targets(real_nodes, OUTAGE), f"port {HEALTH_PORT}"),
        balancing(real_nodes.home, NAIVE_FRONT, targets(real_nodes, OUTAGE), naive),
    ):
        report = measured(measure)

        assert report.failed == 0, log_of(real_nodes.home, FRONT)
        assert report.answers["200"] > 1000
        assert control.answers["503"] > 1000


@pytest.fixture
def naive_check(real_nodes: Real) -> Iterator[None]:
    class Check(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if is_up(real_nodes) else 503)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer((CONTROL_PLANE, NAIVE_CHECK), Check) as server:
        threading.Thread(target=server.serve_forever).start()
        yield
        server.shutdown()


def outage(cluster: Real) -> None:
    """Of the API server; the controller manager, as ever when it cannot renew its lease, starts again."""
    pids = Path(cluster.home) / "kwok" / "clusters" / "lab" / "pids"
    for component in ("kube-controller-manager", "kube-apiserver"):
        os.kill(int((pids / f"{component}.pid").read_text()), signal.SIGKILL)
    threading.Event().wait(OUTAGE_SECONDS)
    cluster.kwokctl("start", "cluster")
    until(lambda: is_up(cluster), 120, "the API server to be back", every=0.5)


def is_up(cluster: Real) -> bool:
    try:
        return cluster.client.request("GET", "/readyz", type=bytes, timeout=2) == b"ok"
    except KubeError:
        return False
