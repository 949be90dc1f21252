"""The Deployment of a node, as the IngressDaemonSet would have it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from controllers.ingress_daemonset.ports import without_ports
from healthchecker.naming import DIGEST, LONGEST, deployment_name
from webhook.ingress_daemonset import API_VERSION, KIND, NODE_LABEL, TEMPLATE_HASH
from webhook.ingress_daemonset.int_or_percent import is_some
from webhook.ingress_daemonset.node_matching import tolerations
from webhook.ingress_daemonset.template import template_of
from webhook.ingress_daemonset.types import IngressDaemonSet, RollingUpdate

Raw = Mapping[str, Any]
HISTORY = 1
"""Old ReplicaSets for each node; nothing is ever rolled back to them."""


def deployment(resource: IngressDaemonSet, node: str) -> dict[str, Any]:
    template = template_for(resource, node)
    spec = {**settings_of(resource), "selector": selector(resource, node), "template": template}
    labels = {**resource.spec.selector.match_labels, NODE_LABEL: label(node)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(resource, deployment_name(resource.metadata.name, node), labels)
        | {"annotations": {TEMPLATE_HASH: digest(template)}},
        "spec": spec,
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


def settings_of(resource: IngressDaemonSet) -> dict[str, Any]:
    """What of the spec can be changed without replacing a pod."""
    return {
        "replicas": resource.spec.pods_per_node,
        "minReadySeconds": resource.spec.min_ready_seconds,
        "progressDeadlineSeconds": resource.spec.progress_deadline_seconds,
        "revisionHistoryLimit": HISTORY,
        # A rollout is paused on the IngressDaemonSet: a paused Deployment would hold up its node without a word.
        "paused": False,
        "strategy": strategy(resource),
    }


def strategy(resource: IngressDaemonSet) -> dict[str, Any]:
    if shares_ports(resource) and not crowds(resource):
        # The kubelet refuses a pod while another holds its ports, even one that is about to end.
        return {"type": "Recreate"}
    rolling = resource.spec.update_strategy.rolling_update
    surge, unavailable = rolling.max_surged_pods_per_node, _unavailable(rolling)
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}}


def selector(resource: IngressDaemonSet, node: str) -> dict[str, Any]:
    return {"matchLabels": {**resource.spec.selector.match_labels, NODE_LABEL: label(node)}}


def template_for(resource: IngressDaemonSet, node: str) -> dict[str, Any]:
    template = resource.spec.template
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    tolerated = [msgspec.to_builtins(each) for each in tolerations(template_of(resource.spec).spec)]
    spec = {**spec, "nodeName": node, "tolerations": tolerated}
    if shares_ports(resource) and crowds(resource):
        spec = without_ports(spec)
    labels = {**(meta.get("labels") or {}), NODE_LABEL: label(node)}
    return {"metadata": {**meta, "labels": labels}, "spec": spec}


def digest(template: Raw) -> str:
    return hashlib.sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()[:16]


def shared_digest(template: Raw) -> str:
    """Of what is the same on all nodes: all but the node's name and its label."""
    template = without_timestamp(template)
    meta, pod = template["metadata"], template.get("spec") or {}
    labels = _without(meta.get("labels") or {}, NODE_LABEL)
    return digest({**template, "metadata": {**meta, "labels": labels}, "spec": _without(pod, "nodeName")})


def without_timestamp(template: Raw) -> dict[str, Any]:
    """Some versions of the API server write a null where others write nothing."""
    return {**template, "metadata": _without(template.get("metadata") or {}, "creationTimestamp")}


def _without(part: Raw, key: str) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != key}


def label(node: str) -> str:
    """The node's name; its beginning and a hash of the whole when that is too long for a label's value."""
    if len(node) <= LONGEST:
        return node
    beginning = node[: LONGEST - DIGEST - 1].rstrip("-.")
    return f"{beginning}-{hashlib.sha256(node.encode()).hexdigest()[:DIGEST]}"


def shares_ports(resource: IngressDaemonSet) -> bool:
    return bool((resource.spec.template.get("spec") or {}).get("hostNetwork"))


def crowds(resource: IngressDaemonSet) -> bool:
    """Whether a node can have to run two of the pods side by side."""
    surge = resource.spec.update_strategy.rolling_update.max_surged_pods_per_node
    return resource.spec.pods_per_node > 1 or is_some(surge)


def _unavailable(rolling: RollingUpdate) -> int | str:
    if rolling.detaches:
        return "100%"
    moves = is_some(rolling.max_unavailable_pods_per_node) or is_some(rolling.max_surged_pods_per_node)
    # With neither a Deployment could not be updated at all, and the API server refuses it.
    return rolling.max_unavailable_pods_per_node if moves else 1
