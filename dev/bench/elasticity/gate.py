"""The gate of elasticity, as it is measured: pods with LOCAL_REPLICAS, and others."""

from __future__ import annotations

from typing import Any

import msgspec

from api.elasticity import LOCAL_REPLICAS, PATH
from controllers.elasticity.pods import decode
from dev.bench.admission import Gate, Marks
from dev.bench.elasticity.crowd import LOCAL, NAMESPACE
from kube.resources import PODS


def review(number: int, annotations: Marks) -> dict[str, Any]:
    """Of a pod with *annotations*, which the controller of ReplicaSets creates."""
    return {
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": NAMESPACE,
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
        "object": pod(number, annotations),
    }


def pod(number: int, annotations: Marks) -> dict[str, Any]:
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


def _is_gated(created: msgspec.Raw) -> bool:
    return decode(created).gated


GATE = Gate(
    path=PATH,
    objects=PODS.path(NAMESPACE),
    one="pod",
    held="gated",
    others=f"pods without {LOCAL_REPLICAS}",
    marks={LOCAL_REPLICAS: str(LOCAL)},
    review=review,
    is_held=_is_gated,
)
