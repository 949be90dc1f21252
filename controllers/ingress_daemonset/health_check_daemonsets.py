"""The desired health-check DaemonSets, one for each port, and their permissions."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

import healthchecker
from controllers.ingress_daemonset.desired import metadata
from healthchecker.naming import deployment_name
from settings.ingress_daemonset import HealthChecker
from webhook.ingress_daemonset.node_matching import tolerations
from webhook.ingress_daemonset.template import template_of
from webhook.ingress_daemonset.types import IngressDaemonSet

FOR = "drawbridge.io/health-checker-for"
"""The label of health checkers, with the name of their DaemonSet."""
RESOURCES = {"requests": {"cpu": "5m", "memory": "48Mi"}, "limits": {"memory": "128Mi"}}
ACCOUNT = "default"
SERVING = {"path": healthchecker.METRICS_PATH, "port": "health"}
SECURITY = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""As the restricted profile of the Pod Security Standards, except for the host network."""


def daemon_sets(resource: IngressDaemonSet, given: HealthChecker) -> list[dict[str, Any]]:
    """*given* has the defaults."""
    return [_daemon_set(resource, port, given) for port in resource.spec.health_check_node_ports]


def access(resource: IngressDaemonSet) -> list[dict[str, Any]]:
    """The Role and the RoleBinding that let health checkers follow Deployments."""
    if not resource.spec.health_check_node_ports:
        return []
    name = deployment_name(resource.metadata.name, "health-checker")
    api, own = "rbac.authorization.k8s.io", metadata(resource, name, {FOR: name})
    rule = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list", "watch"]}
    account = resource.spec.health_checker.service_account_name or ACCOUNT
    subject = {"kind": "ServiceAccount", "name": account, "namespace": resource.metadata.namespace}
    role = {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": own, "rules": [rule]}
    refers = {"apiGroup": api, "kind": "Role", "name": name}
    binding = {"apiVersion": f"{api}/v1", "kind": "RoleBinding", "metadata": own}
    return [role, binding | {"subjects": [subject], "roleRef": refers}]


def _daemon_set(resource: IngressDaemonSet, port: int, given: HealthChecker) -> dict[str, Any]:
    name = deployment_name(resource.metadata.name, str(port))
    labels = {FOR: name}
    pod = {"metadata": {"labels": labels}, "spec": _pod_spec(resource, port, given)}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(resource, name, labels),
        "spec": {"selector": {"matchLabels": labels}, "template": pod, "revisionHistoryLimit": 1},
    }


def _pod_spec(resource: IngressDaemonSet, port: int, given: HealthChecker) -> dict[str, Any]:
    asked = resource.spec.template.get("spec") or {}
    pod = replace(template_of(resource.spec).spec, host_network=True)
    affinity = (asked.get("affinity") or {}).get("nodeAffinity")
    where = {"nodeSelector": {**(asked.get("nodeSelector") or {}), **resource.spec.node_selector}}
    where |= {"affinity": {"nodeAffinity": affinity}} if affinity else {}
    return where | {
        "hostNetwork": True,
        "serviceAccountName": resource.spec.health_checker.service_account_name or ACCOUNT,
        "tolerations": [msgspec.to_builtins(each) for each in tolerations(pod)],
        "containers": [_container(resource, port, given)],
    }


def _container(resource: IngressDaemonSet, port: int, given: HealthChecker) -> dict[str, Any]:
    wanted = resource.spec.health_checker
    return {
        "name": "health-checker",
        "image": wanted.own_image or given.image,
        "imagePullPolicy": wanted.own_pull_policy or given.image_pull_policy or "IfNotPresent",
        "command": ["python", "-m", "healthchecker"],
        "env": _environment(resource, port),
        "ports": [{"name": "health", "containerPort": port, "hostPort": port}],
        "resources": wanted.resources or given.resources or RESOURCES,
        # Not the answer on the port: the checker of a detached node is healthy.
        "readinessProbe": {"httpGet": SERVING, "periodSeconds": 2},
        "livenessProbe": {"httpGet": SERVING, "periodSeconds": 10, "failureThreshold": 3},
        "securityContext": SECURITY,
    }


def _environment(resource: IngressDaemonSet, port: int) -> list[dict[str, Any]]:
    annotation = resource.spec.update_strategy.rolling_update.deployment_annotation
    key = annotation.key if annotation else healthchecker.DEFAULT_ANNOTATION
    said = {
        healthchecker.INGRESS_DAEMONSET: resource.metadata.name,
        healthchecker.PORT: str(port),
        healthchecker.ANNOTATION: key,
        healthchecker.ON_OUTAGE: resource.spec.health_checker.on_api_server_outage,
        healthchecker.BOUND: str(resource.spec.health_checker.outage_tolerance_seconds),
    }
    fields = {healthchecker.NODE: "spec.nodeName", healthchecker.NAMESPACE: "metadata.namespace"}
    return [{"name": name, "value": value} for name, value in said.items()] + [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()
    ]
