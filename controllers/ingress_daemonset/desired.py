"""The Deployment that a node should have."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from api.health_checks import deployment_name, shortened
from api.ingress_daemonset import API_VERSION, KIND, NODE_LABEL, TEMPLATE_HASH
from api.ingress_daemonset.node_matching import tolerations
from api.ingress_daemonset.template import template_of
from api.ingress_daemonset.types import IngressDaemonSet, RollingUpdate, is_some

Raw = Mapping[str, Any]
HISTORY = 1
"""Old ReplicaSets per node; they are never rolled back to."""


def deployment(resource: IngressDaemonSet, node: str) -> dict[str, Any]:
    template = template_for(resource, node)
    labels = {**resource.spec.selector.match_labels, NODE_LABEL: shortened(node)}
    own = metadata(resource, deployment_name(resource.metadata.name, node), labels)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": own | {"annotations": {TEMPLATE_HASH: digest(template)}},
        "spec": {
            **settings_of(resource),
            **size_of(resource),
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }


def metadata(resource: IngressDaemonSet, name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": resource.metadata.name,
        "uid": resource.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    whole = {"name": name, "namespace": resource.metadata.namespace, "labels": dict(labels)}
    return whole | {"ownerReferences": [owner]}


def size_of(resource: IngressDaemonSet) -> dict[str, Any]:
    """The fields by which health checks are judged: with other ones, a node may fail them until it has more pods."""
    return {"replicas": resource.spec.pods_per_node, "minReadySeconds": resource.spec.min_ready_seconds}


def settings_of(resource: IngressDaemonSet) -> dict[str, Any]:
    """The fields that can change without an effect on pods or health checks."""
    return {
        "progressDeadlineSeconds": resource.spec.progress_deadline_seconds,
        "revisionHistoryLimit": HISTORY,
        # The IngressDaemonSet pauses a rollout; a paused Deployment would hold up its node silently.
        "paused": False,
        "strategy": _strategy(resource),
    }


def _strategy(resource: IngressDaemonSet) -> dict[str, Any]:
    if shares_ports(resource) and not _crowds(resource):
        # The kubelet refuses a pod while another holds its ports, even a terminating one.
        return {"type": "Recreate"}
    rolling = resource.spec.update_strategy.rolling_update
    surge, unavailable = rolling.max_surged_pods_per_node, _unavailable(rolling)
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}}


def _unavailable(rolling: RollingUpdate) -> int | str:
    if rolling.detaches:
        return "100%"
    moves = is_some(rolling.max_unavailable_pods_per_node) or is_some(rolling.max_surged_pods_per_node)
    # The API server refuses a Deployment in which both are 0.
    return rolling.max_unavailable_pods_per_node if moves else 1


def template_for(resource: IngressDaemonSet, node: str) -> dict[str, Any]:
    template = resource.spec.template
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    tolerated = [msgspec.to_builtins(each) for each in tolerations(template_of(resource.spec).spec)]
    spec = {**spec, "nodeName": node, "tolerations": tolerated}
    if shares_ports(resource) and _crowds(resource):
        spec = without_ports(spec)
    labels = {**(meta.get("labels") or {}), NODE_LABEL: shortened(node)}
    return {"metadata": {**meta, "labels": labels}, "spec": spec}


def shares_ports(resource: IngressDaemonSet) -> bool:
    return bool((resource.spec.template.get("spec") or {}).get("hostNetwork"))


def _crowds(resource: IngressDaemonSet) -> bool:
    """Whether a node may have to run two of the pods at a time."""
    surge = resource.spec.update_strategy.rolling_update.max_surged_pods_per_node
    return resource.spec.pods_per_node > 1 or is_some(surge)


def template_digest(resource: IngressDaemonSet) -> str:
    """Of the template as nodes get it; the revision is only of the part that the user writes."""
    return shared_digest(template_for(resource, ""))[:10]


def applied_digest(resource: IngressDaemonSet) -> str:
    """Of all that nodes get."""
    return digest({"template": template_digest(resource), **size_of(resource)})[:10]


def is_current(resource: IngressDaemonSet) -> bool:
    """Whether the template is the last one that all nodes had: the way back to it waits for nothing."""
    if revision_of(resource) != resource.current_revision:
        return False
    return resource.current_digest in ("", template_digest(resource))


def revision_of(resource: IngressDaemonSet) -> str:
    """With which the name of the template's ControllerRevision ends."""
    return revision_of_template(resource.spec.template)


def revision_of_template(template: Raw) -> str:
    return digest(without_timestamp(template))[:10]


def digest(template: Raw) -> str:
    return hashlib.sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()[:16]


def shared_digest(template: Raw) -> str:
    """A digest of all but the node's name and its label, so that it is the same on all nodes."""
    template = without_timestamp(template)
    meta, pod = template["metadata"], template.get("spec") or {}
    labels = _without(meta.get("labels") or {}, NODE_LABEL)
    return digest({**template, "metadata": {**meta, "labels": labels}, "spec": _without(pod, "nodeName")})


def without_timestamp(template: Raw) -> dict[str, Any]:
    """Some versions of the API server write a null where others write nothing."""
    return {**template, "metadata": _without(template.get("metadata") or {}, "creationTimestamp")}


def _without(part: Raw, key: str) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != key}


def without_ports(spec: Raw) -> dict[str, Any]:
    """A pod's *spec* without port lists, in which probes and hooks have numbers instead of names.

    The kubelet refuses a second pod on a node that lists the same ports of the host.
    """
    lists = {name: spec[name] for name in ("containers", "initContainers") if spec.get(name)}
    return {**spec} | {name: [_bare(each) for each in containers] for name, containers in lists.items()}


def _bare(container: Raw) -> dict[str, Any]:
    ports = {port["name"]: port["containerPort"] for port in container.get("ports") or () if port.get("name")}
    bare = _numbered(_without(container, "ports"), ("livenessProbe", "readinessProbe", "startupProbe"), ports)
    if hooks := bare.get("lifecycle"):
        bare["lifecycle"] = _numbered(hooks, ("postStart", "preStop"), ports)
    return bare


def _numbered(parts: Raw, handlers: tuple[str, ...], ports: Mapping[str, int]) -> dict[str, Any]:
    """*parts*, with numbers for the named ports of those that are *handlers*."""
    found = {**parts}
    for handler in handlers:
        for asking in ("httpGet", "tcpSocket"):
            asked = (found.get(handler) or {}).get(asking)
            if asked and isinstance(asked.get("port"), str):
                number = ports.get(asked["port"], asked["port"])
                found[handler] = {**found[handler], asking: {**asked, "port": number}}
    return found
