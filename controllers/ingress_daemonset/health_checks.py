"""The desired health-check DaemonSets, one for each port, and their permissions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from api import health_checks
from api.health_checks import deployment_name
from api.ingress_daemonset.node_matching import tolerations
from api.ingress_daemonset.template import template_of
from api.ingress_daemonset.types import Connections, IngressDaemonSet, RollingUpdate, is_some
from controllers.ingress_daemonset.children import (
    Action,
    Children,
    Grant,
    Kind,
    Workload,
    change,
    create,
    delete,
    digest,
    metadata,
    target,
)
from controllers.ingress_daemonset.drift import (
    Altered,
    Baseline,
    Drift,
    annotations_of,
    baseline_of,
    covers,
    drift_of,
    overwrite,
    rewritten,
)
from settings.ingress_daemonset import HealthChecker

FOR = "drawbridge.io/health-checker-for"
"""The label of health checkers, with the name of their DaemonSet."""
RESOURCES = {"requests": {"cpu": "5m", "memory": "48Mi"}, "limits": {"memory": "128Mi"}}
ACCOUNT = "default"
KINDS: tuple[Kind, ...] = ("DaemonSet", "RoleBinding")
SERVING = {"path": health_checks.METRICS_PATH, "port": "health"}
SEEING = {"path": health_checks.READY_PATH, "port": "health"}
SETTLED = 10
"""Seconds, at least, until a load balancer has noticed that a health checker answers again."""
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


def access(resource: IngressDaemonSet, cluster_role: str) -> list[dict[str, Any]]:
    """The RoleBinding that lets health checkers follow Deployments of their namespace, if there are any."""
    if not resource.spec.health_check_node_ports:
        return []
    name = deployment_name(resource.metadata.name, "health-checker")
    api, own = "rbac.authorization.k8s.io", metadata(resource, name, {FOR: name})
    account = resource.spec.health_checker.service_account_name or ACCOUNT
    subject = {"kind": "ServiceAccount", "name": account, "namespace": resource.metadata.namespace}
    refers = {"apiGroup": api, "kind": "ClusterRole", "name": cluster_role}
    binding = {"apiVersion": f"{api}/v1", "kind": "RoleBinding", "metadata": own}
    return [binding | {"subjects": [subject], "roleRef": refers}]


def _daemon_set(resource: IngressDaemonSet, port: int, given: HealthChecker) -> dict[str, Any]:
    name = deployment_name(resource.metadata.name, str(port))
    labels = {FOR: name}
    pod = {"metadata": {"labels": labels}, "spec": _pod_spec(resource, port, given)}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(resource, name, labels),
        "spec": {
            "selector": {"matchLabels": labels},
            "template": pod,
            "revisionHistoryLimit": 1,
            **_pace(resource.spec.update_strategy.rolling_update),
        },
    }


def _pace(rolling: RollingUpdate) -> dict[str, Any]:
    """The load balancer sends a node nothing while its health checker is replaced: as many at a time as may be off."""
    limit = rolling.max_unavailable_nodes if rolling.detaches else rolling.max_degraded_nodes
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": limit if is_some(limit) else 1}}
    return {
        "minReadySeconds": max(SETTLED, rolling.attach_grace_period_seconds),
        "updateStrategy": strategy,
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
    image, policy = ("", "") if wanted.is_the_originals else (wanted.image, wanted.image_pull_policy)
    return {
        "name": "health-checker",
        "image": image or given.image,
        "imagePullPolicy": policy or given.image_pull_policy or "IfNotPresent",
        "command": ["python", "-m", "healthchecker"],
        "env": _environment(resource, port),
        "ports": [{"name": "health", "containerPort": port, "hostPort": port}],
        "resources": wanted.resources or given.resources or RESOURCES,
        # Not the answer on the port: the checker of a detached node is healthy.
        "readinessProbe": {"httpGet": SEEING, "periodSeconds": 2},
        "livenessProbe": {"httpGet": SERVING, "periodSeconds": 10, "failureThreshold": 3},
        "securityContext": SECURITY,
    }


def _environment(resource: IngressDaemonSet, port: int) -> list[dict[str, Any]]:
    annotation = resource.spec.update_strategy.rolling_update.deployment_annotation
    key = annotation.key if annotation else health_checks.DEFAULT_ANNOTATION
    said = {
        health_checks.INGRESS_DAEMONSET: resource.metadata.name,
        health_checks.PORT: str(port),
        health_checks.ANNOTATION: key,
        health_checks.ON_OUTAGE: resource.spec.health_checker.on_api_server_outage,
        health_checks.BOUND: str(resource.spec.health_checker.outage_tolerance_seconds),
    }
    fields = {health_checks.NODE: "spec.nodeName", health_checks.NAMESPACE: "metadata.namespace"}
    said |= _counting(resource.spec.update_strategy.rolling_update.connections)
    return [{"name": name, "value": value} for name, value in said.items()] + [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()
    ]


def _counting(wanted: Connections | None) -> dict[str, str]:
    """Without *wanted* nothing, so that health checkers stay as they are."""
    if wanted is None:
        return {}
    if endpoint := wanted.endpoint:
        return {health_checks.CONNECTION_METRIC: f"{endpoint.port} {endpoint.path} {endpoint.metric}"}
    return {health_checks.CONNECTION_PORTS: ",".join(map(str, wanted.ports))}


Body = dict[str, Any]


class ChildResources:
    """The desired and the held children of *resource*, but for Deployments."""

    def __init__(self, resource: IngressDaemonSet, held: Children, defaults: HealthChecker) -> None:
        self._uid = resource.metadata.uid
        self._held = {target(kind, each.metadata): each for kind in KINDS for each in held[kind]}
        bodies = [*daemon_sets(resource, defaults), *access(resource, defaults.cluster_role)]
        self._desired = {create(body["kind"], body).target: body for body in bodies}
        self._pairs = [(each, self._held.get(each), body) for each, body in self._desired.items()]

    def actions(self, kind: Kind) -> Iterable[Action]:
        for each, held, body in self._pairs:
            if each.kind == kind and held is None:
                yield create(kind, _with_baseline(body) if kind == "DaemonSet" else body)
            elif each.kind == kind and held and held.is_managed(self._uid, body):
                yield from _changes(kind, held, body)
        for each, held in self._held.items():
            ours = held.is_of(self._uid) and not held.is_terminating
            if ours and each.kind == kind and each not in self._desired:
                yield delete(kind, held.metadata)

    def altered(self) -> Iterable[Altered]:
        """DaemonSets that are left as another writer made them."""
        for each, held, body in self._pairs:
            ours = each.kind == "DaemonSet" and held and held.is_managed(self._uid, body)
            if held and ours and _drift(held, body) is Drift.ALTERED:
                yield Altered(each.kind, each.name, held.spec_digest)

    def unmanaged(self) -> list[str]:
        """The names of objects that have a name of ours; they are left alone."""
        return [
            each.name for each, held, body in self._pairs if held and not held.is_managed(self._uid, body)
        ]


def _with_baseline(body: Body) -> Body:
    annotations = annotations_of(Baseline(digest(body["spec"]), generation=1))
    return body | {"metadata": body["metadata"] | {"annotations": annotations}}


def _changes(kind: Kind, held: Workload | Grant, body: Body) -> Iterable[Action]:
    if isinstance(held, Workload):
        yield from _daemonset_changes(held, body)
        return
    if held.role != body["roleRef"]:  # it can never be changed: the next reconcile creates another one
        yield delete(kind, held.metadata)
    elif not covers(body["subjects"], held.subjects):
        yield change(kind, held.metadata, {}, subjects=body["subjects"])


def _daemonset_changes(held: Workload, body: Body) -> Iterable[Action]:
    """Unlike a Deployment, a DaemonSet gets no new generation for its annotations."""
    drift, old = _drift(held, body), baseline_of(held.metadata.annotations) or Baseline()
    now, desired = held.metadata.generation, digest(body["spec"])
    if drift.calls_for_update:
        asked = rewritten(Baseline(desired, generation=now + 1), drift, old, held.spec_digest)
        spec = overwrite(body["spec"], held.spec)
        yield change("DaemonSet", held.metadata, {"annotations": annotations_of(asked)}, spec=spec)
    elif drift is Drift.UNRECORDED:
        known = Baseline(desired, generation=now, digest=held.spec_digest, undone=old.undone)
        yield change("DaemonSet", held.metadata, {"annotations": annotations_of(known)})


def _drift(held: Workload, body: Body) -> Drift:
    desired = body["spec"]
    return drift_of(held, digest(desired), held.spec_digest, lambda: covers(desired, held.spec))
