"""Dry runs of objects on which a webhook of ours leaves a mark: values, and what the answers mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from api.anycast_ip import TAINT
from api.elasticity import GATE, LOCAL_REPLICAS
from api.ingress_daemonset import API_VERSION, INGRESS_DAEMONSETS, KIND, NODE_LABEL
from kube.errors import ApiError, KubeError
from kube.resources import NODES, PODS, Resource
from settings import Settings

NAME = "drawbridge-doctor"
FAILED = "failed calling webhook"
"""What the API server says when a webhook that fails closed gave no answer."""
UNMARKED = "the webhook was not called, or gave no answer, and the API server went on without"
Raw = dict[str, Any]


@dataclass(frozen=True)
class Probe:
    """*body* is sent as a dry run; *is_marked* says of the answer whether the webhook has seen it."""

    what: str
    resource: Resource
    namespace: str | None
    body: Raw
    is_marked: Callable[[Raw], bool]


def probes(settings: Settings, namespace: str) -> Iterator[Probe]:
    """Of the features that are on. IP reservation has none: its webhook is not called in a dry run."""
    if settings.anycast_ip.enabled:
        node = _object("v1", "Node", labels=settings.anycast_ip.node_labels)
        yield Probe("dry run of a Node", NODES, None, node, _is_tainted)
    if settings.elasticity.enabled:
        pod = _object("v1", "Pod", annotations={LOCAL_REPLICAS: "1"}) | {"spec": _pod()}
        yield Probe("dry run of a pod", PODS, namespace, pod, _is_gated)
    if settings.ingress_daemonset.enabled:
        template = {"metadata": {"labels": {"app": NAME}}, "spec": _pod()}
        # No node has it: nothing would be done with it, were it stored.
        spec = {"nodeSelector": {NODE_LABEL: NAME}, "template": template}
        resource = _object(API_VERSION, KIND) | {"spec": spec}
        yield Probe("dry run of an IngressDaemonSet", INGRESS_DAEMONSETS, namespace, resource, _is_defaulted)


def problem_of(probe: Probe, answer: Raw | KubeError) -> str | KubeError:
    """Nothing when all is well; the error when it says nothing about the webhook."""
    if isinstance(answer, ApiError) and FAILED in answer.message:
        return answer.message
    if isinstance(answer, KubeError):
        return answer
    return "" if probe.is_marked(answer) else UNMARKED


def _object(api_version: str, kind: str, **metadata: Any) -> Raw:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": NAME, **metadata}}


def _pod() -> Raw:
    """One that every profile of pod security admits."""
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    resources = {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}}
    container = {"name": "none", "image": NAME, "securityContext": restricted, "resources": resources}
    return {"containers": [container], "automountServiceAccountToken": False}


def _is_tainted(node: Raw) -> bool:
    return any(each.get("key") == TAINT.key for each in node.get("spec", {}).get("taints") or ())


def _is_gated(pod: Raw) -> bool:
    return any(each.get("name") == GATE for each in pod.get("spec", {}).get("schedulingGates") or ())


def _is_defaulted(resource: Raw) -> bool:
    """The selector is made of the template's labels, which no schema can do."""
    return bool(resource.get("spec", {}).get("selector"))
