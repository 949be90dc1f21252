"""What is created: one IngressDaemonSet, or as many plain Deployments as it would make."""

from __future__ import annotations

from typing import Any

from api.ingress_daemonset import API_VERSION, KIND
from api.ingress_daemonset.types import IngressDaemonSet, resource
from controllers.ingress_daemonset import children
from dev.lab.kubelet.nodes import LABEL

NAME = "edge"
PODS_PER_NODE = 2
DETACHED = "bench.drawbridge.io/detached"
OLD, NEW = "proxy:1", "proxy:2"


def ingress_daemonset(namespace: str, budget: int) -> dict[str, Any]:
    """On all of kwok's nodes; they are detached by both annotations, without any grace, *budget* at a time."""
    rolling = {"maxUnavailableNodes": budget, "annotateNodeToDetach": {"key": DETACHED, "value": "true"}}
    template = {
        "metadata": {"labels": {"app": NAME}},
        "spec": {"nodeSelector": {"type": "kwok"}, "containers": containers(OLD)},
    }
    return _of(namespace, NAME, {"podsPerNode": PODS_PER_NODE, "template": template} | _strategy(rolling))


def containers(image: str) -> list[dict[str, Any]]:
    return [{"name": "proxy", "image": image, "ports": [{"name": "http", "containerPort": 80}]}]


def with_health_checker(namespace: str, name: str, image: str, port: int) -> dict[str, Any]:
    """One whose pods, and health checkers on *port*, are processes of this machine; *image* is that of the chart."""
    spec = {
        "nodeSelector": {LABEL: "node"},
        "tolerations": [{"key": LABEL, "operator": "Exists"}],
        "containers": [{"name": "idle", "image": image, "command": ["sleep", "infinity"]}],
        "terminationGracePeriodSeconds": 0,
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    return _of(namespace, name, {"healthCheckNodePorts": [port], "template": template})


def plain(wanted: dict[str, Any], node: str) -> dict[str, Any]:
    """The Deployment that *wanted*, an IngressDaemonSet, would have on *node*, to the controllers of no concern."""
    parsed: IngressDaemonSet = resource(wanted)
    body = children.deployment(parsed, node)
    metadata = {"name": body["metadata"]["name"], "labels": parsed.spec.selector.match_labels}
    return body | {"metadata": metadata}


def _strategy(rolling: dict[str, Any]) -> dict[str, Any]:
    return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}


def _of(namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
