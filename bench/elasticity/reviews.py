"""New pods, as the API server asks its webhooks about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from bench.elasticity.crowd import NAMESPACE


def pod(number: int, annotations: Mapping[str, str]) -> dict[str, Any]:
    """One of a ReplicaSet, as the API server has filled it in for its webhooks."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d9f8c6b5", "controller": True}
    mount = {"name": "kube-api-access-x2z9k", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    container = {
        "name": "web",
        "image": "nginx",
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "resources": {},
        "volumeMounts": [mount | {"readOnly": True}],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
    }
    token = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
        for key in ("not-ready", "unreachable")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"web-7d9f8c6b5-{number}",
            "namespace": NAMESPACE,
            "labels": {"app": "web", "pod-template-hash": "7d9f8c6b5"},
            "annotations": dict(annotations),
            "ownerReferences": [owner | {"uid": "6c1f3f0a-2b7e-4c57-9d0c-000000000000"}],
        },
        "spec": {
            "containers": [container],
            "volumes": [{"name": mount["name"], "projected": {"sources": [token]}}],
            "tolerations": tolerations,
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default",
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "enableServiceLinks": True,
        },
    }


def bodies(annotations: Mapping[str, str]) -> tuple[bytes, ...]:
    """A thousand AdmissionReviews as the API server sends them for the creation of a pod, each of another."""
    return tuple(_body(number, annotations) for number in range(1000))


def _body(number: int, annotations: Mapping[str, str]) -> bytes:
    asked = {
        "uid": f"6c1f3f0a-2b7e-4c57-9d0c-{number:012d}",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": NAMESPACE,
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
        "object": pod(number, annotations),
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return msgspec.json.encode(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": asked}
    )
