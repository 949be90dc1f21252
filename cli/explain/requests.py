"""The requests that people ask about, as the API server would make them of an object that is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.explain.webhook_configurations import ApiRequest
from kube.resources import PODS, Resource
from webhook.admission import Operation

Raw = Mapping[str, Any]
OF_A_STORED_OBJECT = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "selfLink",
)
"""Metadata that no client sends with a new object."""


def deletion(pod: Raw) -> ApiRequest:
    return _request("DELETE", PODS, pod, old=_typed(PODS, pod))


def eviction(pod: Raw) -> ApiRequest:
    names = {name: pod["metadata"][name] for name in ("name", "namespace")}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": names}
    return _request("CREATE", PODS.sub("eviction"), pod, new=body)


def creation(resource: Resource, stored: Raw) -> ApiRequest:
    """Of an object like *stored*: a pod is not bound to a node yet."""
    metadata = {name: value for name, value in stored["metadata"].items() if name not in OF_A_STORED_OBJECT}
    spec = {name: value for name, value in stored.get("spec", {}).items() if name != "nodeName"}
    new = {"metadata": metadata, "spec": spec}
    return _request("CREATE", resource, stored, new=_typed(resource, new))


def change(resource: Resource, old: Raw, new: Raw) -> ApiRequest:
    return _request("UPDATE", resource, old, old=_typed(resource, old), new=_typed(resource, new))


def _request(
    operation: Operation,
    resource: Resource,
    about: Raw,
    *,
    new: Raw | None = None,
    old: Raw | None = None,
) -> ApiRequest:
    metadata = about["metadata"]
    namespace = metadata.get("namespace", "")
    return ApiRequest(operation, resource, metadata["name"], namespace, object=new, old_object=old)


KINDS = {"pods": "Pod", "nodes": "Node", "daemonsets": "DaemonSet", "ingressdaemonsets": "IngressDaemonSet"}


def _typed(resource: Resource, raw: Raw) -> Raw:
    """A LIST leaves these fields out of its items."""
    return {"apiVersion": resource.api_version, "kind": KINDS[resource.plural], **raw}
