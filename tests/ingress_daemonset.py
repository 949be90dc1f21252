"""IngressDaemonSets as they come to admission, and the answers of both its halves."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonpatch
import msgspec
import yaml

from api.ingress_daemonset import API_VERSION, KIND, NODE_LABEL
from api.ingress_daemonset.types import IngressDaemonSet
from dev.fake_api import merged
from kube.errors import KubeError
from settings import IngressDaemonSetSettings
from webhook.admission import Decision, Request, parse, render
from webhook.ingress_daemonset.validate import PortUser, Problem
from webhook.ingress_daemonset.webhook import DefaultingWebhook, ValidatingWebhook

DATA = Path(__file__).parent / "data"
EXAMPLE = DATA / "ingress_daemonset.example.yaml"
"""The example of the original's README, its comments left out."""

Raw = dict[str, Any]


def example() -> Raw:
    raw: Raw = yaml.safe_load(EXAMPLE.read_text())
    return raw


def raw(spec: Raw | None = None, **metadata: Any) -> Raw:
    """The smallest valid one, with *spec* over it."""
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "nginx"}]},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "web", "namespace": "edge"} | metadata,
        "spec": merged({"template": template}, spec or {}),
    }


def request(new: Any, old: Any = None) -> Request:
    fields = {"uid": "request-1", "operation": "UPDATE" if old else "CREATE", "object": new, "oldObject": old}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": fields}
    return parse(msgspec.json.encode(review))


def pod_on(node: str) -> Raw:
    """One of the IngressDaemonSet web."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"web-{node}-7d4", "uid": "u-1"}
    metadata = {"name": f"web-{node}-7d4-x", "namespace": "edge", "uid": f"uid-{node}"}
    labels = {"app": "web", NODE_LABEL: node, "pod-template-hash": "7d4"}
    return {
        "metadata": metadata | {"labels": labels, "ownerReferences": [owner | {"controller": True}]},
        "spec": {"nodeName": node, "containers": [{"name": "proxy", "image": "proxy:1"}]},
        "status": {"phase": "Running"},
    }


def eviction_on(node: str, **parts: Any) -> Request:
    """Of the pod there."""
    name = pod_on(node)["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    place = {"namespace": "edge", "name": name, "subResource": "eviction"}
    fields = {"uid": "request-1", "operation": "CREATE", "object": eviction} | place | parts
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": fields}
    return parse(msgspec.json.encode(review))


class Templates:
    """An API server that finds *faults*, a KubeError or problems, in each template that it is asked about."""

    def __init__(self, faults: KubeError | Sequence[Problem] = ()) -> None:
        self._faults = faults
        self.asked = 0

    def problems(self, template: Mapping[str, Any], deadline: float) -> Sequence[Problem]:
        self.asked += 1
        if isinstance(self._faults, KubeError):
            raise self._faults
        return self._faults


def webhooks(
    *others: PortUser | Exception, templates: Templates | None = None, **settings: Any
) -> tuple[DefaultingWebhook, ValidatingWebhook]:
    """In a cluster with *others*; an exception among them is raised."""
    parsed = IngressDaemonSetSettings.model_validate({"enabled": True, **settings})

    def port_users(new: IngressDaemonSet, deadline: float) -> Sequence[PortUser]:
        for each in others:
            if isinstance(each, Exception):
                raise each
        return [each for each in others if isinstance(each, PortUser)]

    problems = (templates or Templates()).problems
    return DefaultingWebhook(lambda: parsed), ValidatingWebhook(lambda: parsed, port_users, problems)


def outcome(new: Raw, question: Request, decision: Decision) -> tuple[Raw, list[str]]:
    """*new* as the API server has it after it applied the answer, and what it warned of."""
    response = msgspec.json.decode(render(question, decision))["response"]
    assert response["allowed"]
    operations = msgspec.json.decode(b64decode(response.get("patch", "W10=")))
    return jsonpatch.apply_patch(new, operations), response.get("warnings", [])
