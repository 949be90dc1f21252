"""Health checkers: one DaemonSet for each port, their permissions, and what has to be written of both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from api import health_checks
from api.health_checks import deployment_name
from api.ingress_daemonset import TO_BE_UPDATED
from api.ingress_daemonset.template import node_labels, template_of, tolerations
from api.ingress_daemonset.types import IngressDaemonSet, is_some
from controllers.ingress_daemonset.children import (
    Action,
    Children,
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
from kube.selectors import kept_off_super_nodes
from settings.ingress_daemonset import HealthChecker

FOR = "drawbridge.io/health-checker-for"
"""The label of health checkers, with the name of their DaemonSet."""
RESOURCES = {"requests": {"cpu": "5m", "memory": "48Mi"}, "limits": {"memory": "128Mi"}}
ACCOUNT = "default"
Raw = dict[str, Any]
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
    labels, rolling = {FOR: name}, resource.spec.update_strategy.rolling_update
    # The load balancer sends a node nothing while its health checker is replaced: as many at a time as may be off.
    limit = rolling.max_unavailable_nodes if rolling.detaches else rolling.max_degraded_nodes
    pace = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": limit if is_some(limit) else 1}}
    asked = resource.spec.template.get("spec") or {}
    tolerated = tolerations(replace(template_of(resource.spec).spec, host_network=True))
    affinity = (asked.get("affinity") or {}).get("nodeAffinity")
    # Unlike us, the controller of DaemonSets makes pods for super nodes, where they are tolerated.
    placed = {"nodeSelector": node_labels(resource), "affinity": {"nodeAffinity": affinity}}
    pod = kept_off_super_nodes(placed) | {
        "hostNetwork": True,
        "serviceAccountName": resource.spec.health_checker.service_account_name or ACCOUNT,
        "tolerations": [msgspec.to_builtins(each) for each in tolerated],
        "containers": [_container(resource, port, given)],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(resource, name, labels),
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            "revisionHistoryLimit": 1,
            "minReadySeconds": max(SETTLED, rolling.attach_grace_period_seconds),
            "updateStrategy": pace,
        },
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
        "livenessProbe": {
            "httpGet": SERVING,
            "periodSeconds": 10,
            "timeoutSeconds": 3,
            "failureThreshold": 3,
        },
        "securityContext": SECURITY,
    }


def _environment(resource: IngressDaemonSet, port: int) -> list[dict[str, Any]]:
    rolling, checker = resource.spec.update_strategy.rolling_update, resource.spec.health_checker
    annotation, wanted = rolling.deployment_annotation, rolling.connections
    said = {
        health_checks.INGRESS_DAEMONSET: resource.metadata.name,
        health_checks.PORT: str(port),
        health_checks.ANNOTATION: annotation.key if annotation else TO_BE_UPDATED,
        health_checks.ON_OUTAGE: checker.on_api_server_outage,
        health_checks.BOUND: str(checker.outage_tolerance_seconds),
    }
    # Without connections nothing, so that health checkers stay as they are.
    if wanted and (endpoint := wanted.endpoint):
        said[health_checks.CONNECTION_METRIC] = f"{endpoint.port} {endpoint.path} {endpoint.metric}"
    elif wanted:
        said[health_checks.CONNECTION_PORTS] = ",".join(map(str, wanted.ports))
    fields = {health_checks.NODE: "spec.nodeName", health_checks.NAMESPACE: "metadata.namespace"}
    return [{"name": name, "value": value} for name, value in said.items()] + [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()
    ]


@dataclass(frozen=True)
class HealthCheckers:
    """What has to be written of DaemonSets and RoleBindings; *unmanaged* ones have a name of ours and are left alone.

    *altered* are DaemonSets that are left as another writer made them.
    """

    actions: tuple[Action, ...] = ()
    altered: tuple[Altered, ...] = ()
    unmanaged: tuple[str, ...] = ()


def plan_health_checkers(
    resource: IngressDaemonSet, held: Children, defaults: HealthChecker
) -> HealthCheckers:
    """*held* are all objects of the namespace that bear our labels or names."""
    uid = resource.metadata.uid
    bodies = [*daemon_sets(resource, defaults), *access(resource, defaults.cluster_role)]
    desired = {create(body).target: body for body in bodies}
    known = {target(kind, each.metadata): each for kind in KINDS for each in held[kind]}
    actions, altered, unmanaged = list[Action](), list[Altered](), list[str]()
    former = any(
        each.kind == "DaemonSet" and (live := known.get(each)) and live.is_of(uid) and _has_former(live, body)
        for each, body in desired.items()
    )
    for each, body in desired.items():
        live = known.get(each)
        if live is None:
            if each.kind == "DaemonSet":
                annotations = annotations_of(Baseline(digest(body["spec"]), generation=1))
                body = body | {"metadata": body["metadata"] | {"annotations": annotations}}
            actions.append(create(body))
        elif not live.is_managed(uid, body):
            unmanaged.append(each.name)
        elif live.is_terminating:
            continue
        elif isinstance(live, Workload):
            drift = drift_of(
                live, digest(body["spec"]), live.spec_digest, partial(covers, body["spec"], live.spec)
            )
            actions += _daemon_set_changes(live, body, drift)
            if drift is Drift.ALTERED:
                altered.append(Altered(each.kind, each.name, live.spec_digest))
        elif live.role != body["roleRef"]:  # it can never be changed: the next reconcile creates another one
            actions.append(delete(each.kind, live.metadata))
        else:
            subjects = _subjects(body["subjects"], live.subjects or [], former)
            labels = live.missing_labels(body)
            if labels or not covers(subjects, live.subjects):
                actions.append(change(each.kind, live.metadata, labels, subjects=subjects))
    for each, live in known.items():
        if each not in desired and live.is_of(uid) and not live.is_terminating:
            actions.append(delete(each.kind, live.metadata))
    return HealthCheckers(tuple(actions), tuple(altered), tuple(unmanaged))


def _daemon_set_changes(held: Workload, body: Raw, drift: Drift) -> Iterable[Action]:
    """Unlike a Deployment, a DaemonSet gets no new generation for its annotations."""
    old = baseline_of(held.metadata.annotations) or Baseline()
    desired, labels = body["spec"], held.missing_labels(body)
    wanted, now = digest(desired), held.metadata.generation
    if drift.calls_for_update:
        asked = rewritten(Baseline(wanted, generation=now + 1), drift, old, held.spec_digest)
        changed = labels | {"annotations": annotations_of(asked)}
        yield change("DaemonSet", held.metadata, changed, spec=overwrite(desired, held.spec))
    elif drift is Drift.UNRECORDED:
        known = Baseline(wanted, generation=now, digest=held.spec_digest, undone=old.undone)
        yield change("DaemonSet", held.metadata, labels | {"annotations": annotations_of(known)})
    elif labels:
        yield change("DaemonSet", held.metadata, labels)


def _has_former(held: Workload, body: dict[str, Any]) -> bool:
    """Whether health checkers with another ServiceAccount may be left."""
    account = (held.spec.get("template") or {}).get("spec", {}).get("serviceAccountName")
    if account != body["spec"]["template"]["spec"]["serviceAccountName"]:
        return True
    is_observed, status = held.status.observed_generation >= held.metadata.generation, held.status
    return not is_observed or status.updated_number_scheduled < status.desired_number_scheduled


def _subjects(wanted: list[Raw], live: list[Raw], former: bool) -> list[Raw]:
    """Health checkers of the *former* ServiceAccount follow their Deployments until they are replaced."""
    return (
        [*wanted, *(each for each in live if not any(covers(new, each) for new in wanted))]
        if former
        else wanted
    )
