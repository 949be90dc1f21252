"""The objects of users: nodes, workloads of each feature, and an IngressDaemonSet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube.client import Resource
from kube.resources import DEPLOYMENTS, STATEFUL_SETS

Raw = dict[str, Any]
SHOP = "shop"
"""The namespace of users; its pods are selected by ip_reservation."""
INSTANCE_LABEL = "cloud.tencent.com/node-instance-id"
INGRESS_LABEL = "ingress-controller-node"
SUPER_LABEL = "node.kubernetes.io/instance-type"
SUPER_TAINT = "eks.tke.cloud.tencent.com/eklet"
FIXED_IP, PLACEMENT_MODE = "cni.projectcalico.org/ipAddrs", "drawbridge.io/placement-mode"
CHECK_PORT = 10080
NO_LABELS: Mapping[str, str] = {}


def namespace() -> Raw:
    return {
        "metadata": {"name": SHOP, "labels": {"ip-reserve": "enabled", "kubernetes.io/metadata.name": SHOP}}
    }


def node(
    name: str, number: int, labels: Mapping[str, str] = NO_LABELS, *, instance: str = "", cpu: int = 8
) -> Raw:
    """Labels without a value are none."""
    ins = instance or f"ins-{number:08d}"
    return {
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                INSTANCE_LABEL: ins,
                **{key: value for key, value in labels.items() if value},
            },
        },
        "spec": {"providerID": f"qcloud:///800002/{ins}"},
        "status": {
            "capacity": capacity(cpu),
            "allocatable": capacity(cpu),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "addresses": [{"type": "InternalIP", "address": f"10.1.0.{number}"}],
        },
    }


def super_node(name: str, number: int) -> Raw:
    """As eklet registers one."""
    raw = node(name, number, cpu=500)
    raw["metadata"]["labels"] |= {SUPER_LABEL: "eklet"}
    raw["metadata"]["labels"].pop(INSTANCE_LABEL)
    raw["spec"] = {"taints": [{"key": SUPER_TAINT, "effect": "NoSchedule"}], "providerID": ""}
    return raw


def capacity(cpu: int) -> Raw:
    return {"cpu": str(cpu), "memory": f"{cpu * 4}Gi", "pods": "110", "ephemeral-storage": "100Gi"}


def template(app: str, image: str, cpu: str = "500m", **spec: Any) -> Raw:
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}}
    return {
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 10, **spec},
    }


def stateful_set(name: str, replicas: int) -> Raw:
    return {
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": template(name, "redis:1"),
        },
    }


def disruption_budget(app: str, most: int = 1) -> Raw:
    return {
        "metadata": {"name": app, "namespace": SHOP},
        "spec": {"maxUnavailable": most, "selector": {"matchLabels": {"app": app}}},
    }


def job(name: str, pods: int, *, local: int) -> Raw:
    """Its pods end by themselves."""
    about = template(name, "ending:1", "1", restartPolicy="Never")
    about["metadata"]["annotations"] = {"LOCAL_REPLICAS": str(local)}
    return {
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {"parallelism": pods, "completions": pods, "template": about},
    }


def short_lived(name: str, pods: int) -> Raw:
    """A Job whose pods ask for their addresses to be reserved."""
    raw = job(name, pods, local=pods)
    raw["spec"]["template"]["metadata"]["annotations"] = {"drawbridge.io/reserve-ip": "true"}
    return raw


def alone(name: str) -> Raw:
    """A pod without a controller that asks for its address to be reserved."""
    about = template(name, "redis:1")
    metadata = {**about["metadata"], "name": name, "namespace": SHOP}
    return about | {"metadata": metadata | {"annotations": {"drawbridge.io/reserve-ip": "true"}}}


def deployment(name: str, replicas: int, *, local: int | None = None, cpu: str = "1", **spec: Any) -> Raw:
    pods = template(name, "web:1", cpu, **spec)
    if local is not None:
        pods["metadata"]["annotations"] = {"LOCAL_REPLICAS": str(local)}
    return {
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": pods,
        },
    }


def shapes() -> list[tuple[Resource, Raw]]:
    """Workloads whose pods differ in what decides where they run."""
    tolerates: Raw = {"tolerations": [{"key": SUPER_TAINT, "operator": "Exists"}]}
    ranked, pinned = stateful_set("ranked", 3), deployment("pinned", 2, local=1)
    ranked["spec"]["template"]["metadata"]["annotations"] = {"LOCAL_REPLICAS": "1"}
    pinned["spec"]["template"]["metadata"]["annotations"][PLACEMENT_MODE] = "pin"
    fixed, barred = deployment("fixed", 2, local=0), deployment("barred", 2, **tolerates)
    for each in (fixed, barred):
        each["spec"]["template"]["metadata"].setdefault("annotations", {})[FIXED_IP] = '["10.9.0.1"]'
    others = (
        deployment("asking", 1, local=1, nodeSelector={SUPER_LABEL: "eklet"}),
        deployment("tolerant", 2, **tolerates),
        deployment("large", 1, cpu="20"),
        deployment("heavy", 2, local=1, cpu="5"),
    )
    return [(STATEFUL_SETS, ranked), *((DEPLOYMENTS, each) for each in (pinned, fixed, barred, *others))]


def ingress_daemon_set(name: str, pods_per_node: int = 2, max_unavailable: int = 1, **spec: Any) -> Raw:
    return {
        "apiVersion": "ingressdaemonsets.mumoshu.github.io/v1alpha1",
        "kind": "IngressDaemonSet",
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {
            "podsPerNode": pods_per_node,
            "healthCheckNodePorts": [CHECK_PORT],
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {
                    "maxUnavailableNodes": max_unavailable,
                    "annotateDeploymentToDetach": {"gracePeriodSeconds": 5},
                    "annotateNodeToDetach": {
                        "key": "node-detacher.variant.run/detached",
                        "value": "true",
                        "gracePeriodSeconds": 10,
                    },
                },
            },
            "template": template(name, "proxy:1", "100m", nodeSelector={INGRESS_LABEL: "true"}),
            **spec,
        },
    }
