"""Nodes and pods as large as usual: with managed fields, environment, volumes and conditions."""

from __future__ import annotations

import uuid
from typing import Any

PODS_OF_AN_OWNER = 10
OWNERS_OF_A_NAMESPACE = 20
NODES = 1000
AT = "2026-01-02T03:04:05Z"

Object = dict[str, Any]


def uid(kind: str, number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{kind}-{number}"))


def metadata(kind: str, name: str, number: int, fields: Object) -> Object:
    managed = {
        "manager": "kubelet",
        "operation": "Update",
        "apiVersion": "v1",
        "time": AT,
        "fieldsType": "FieldsV1",
    }
    return {
        "name": name,
        "uid": uid(kind, number),
        "resourceVersion": str(100_000 + number),
        "creationTimestamp": AT,
        "managedFields": [{**managed, "fieldsV1": fields}] * 2,
    }


def pod(number: int) -> Object:
    """It runs; every tenth one is of a StatefulSet, all others are of Deployments."""
    owner, ordinal = divmod(number, PODS_OF_AN_OWNER)
    is_stateful = owner % 10 == 0
    workload, namespace = f"service-{owner}", f"team-{owner // OWNERS_OF_A_NAMESPACE}"
    revision = f"{owner * 7919 % 2**32:x}"
    name = f"{workload}-{ordinal}" if is_stateful else f"{workload}-{revision}-{uid('pod', number)[:5]}"
    revisions = (
        {"controller-revision-hash": f"{workload}-{revision}", "statefulset.kubernetes.io/pod-name": name}
        if is_stateful
        else {"pod-template-hash": revision}
    )
    labels = {
        "app.kubernetes.io/name": workload,
        "app.kubernetes.io/instance": workload,
        "app.kubernetes.io/version": "1.2.3",
        "app.kubernetes.io/managed-by": "Helm",
        "team": namespace,
        **revisions,
    }
    annotations = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "8080",
        "cni.projectcalico.org/containerID": uid("sandbox", number) * 2,
        "cni.projectcalico.org/podIP": f"{address(number)}/32",
        "cni.projectcalico.org/podIPs": f"{address(number)}/32",
        "kubectl.kubernetes.io/restartedAt": AT,
        "checksum/config": uid("config", owner) * 2,
    }
    reference = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet" if is_stateful else "ReplicaSet",
        "name": workload if is_stateful else f"{workload}-{revision}",
        "uid": uid("owner", owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    fields = {
        "f:metadata": {"f:labels": {f"f:{name}": {} for name in labels}},
        "f:spec": {"f:containers": {}},
    }
    more = {
        "namespace": namespace,
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [reference],
    }
    return {
        "metadata": metadata("pod", name, number, fields) | more,
        "spec": spec(workload, number),
        "status": status(number),
    }


def address(number: int) -> str:
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def spec(workload: str, number: int) -> Object:
    container = {
        "name": "main",
        "image": f"registry.example/{workload}:1.2.3",
        "env": [
            {"name": f"VARIABLE_{each}", "value": f"value of {each} in {workload}"} for each in range(20)
        ],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"},
            "periodSeconds": 10,
        },
        "volumeMounts": [{"name": f"volume-{each}", "mountPath": f"/mnt/{each}"} for each in range(4)],
    }
    return {
        "nodeName": f"node-{number % NODES}.example.internal",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "serviceAccountName": workload,
        "containers": [container, {**container, "name": "sidecar"}],
        "volumes": [
            {"name": f"volume-{each}", "configMap": {"name": f"{workload}-{each}"}} for each in range(4)
        ],
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{key}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
            for key in ("not-ready", "unreachable")
        ],
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {
                            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": workload}},
                            "topologyKey": "kubernetes.io/hostname",
                        },
                    }
                ]
            }
        },
    }


def status(number: int) -> Object:
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    state = {
        "state": {"running": {"startedAt": AT}},
        "ready": True,
        "restartCount": 0,
        "imageID": uid("image", number),
    }
    return {
        "phase": "Running",
        "podIP": address(number),
        "podIPs": [{"ip": address(number)}],
        "hostIP": f"192.168.{number % NODES >> 8}.{number % 256}",
        "startTime": AT,
        "qosClass": "Burstable",
        "conditions": [
            {"type": each, "status": "True", "lastProbeTime": None, "lastTransitionTime": AT}
            for each in types
        ],
        "containerStatuses": [{**state, "name": name} for name in ("main", "sidecar")],
    }


def node(number: int) -> Object:
    name = f"node-{number}.example.internal"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "S5.2XLARGE16",
        "topology.kubernetes.io/region": "ap-guangzhou",
        "topology.kubernetes.io/zone": f"ap-guangzhou-{number % 3}",
        **{f"example.com/label-{each}": f"value-{each}" for each in range(15)},
    }
    annotations = {f"example.com/annotation-{each}": f"{each} {number} " * 5 for each in range(10)}
    conditions = ("NetworkUnavailable", "MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    resources = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    return {
        "metadata": metadata("node", name, number, {}) | {"labels": labels, "annotations": annotations},
        "spec": {
            "providerID": f"qcloud:///{number % 3}/ins-{number:08d}",
            "podCIDR": f"10.{number >> 8}.{number & 255}.0/24",
        },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": f"192.168.{number >> 8}.{number & 255}"}],
            "conditions": [
                {
                    "type": each,
                    "status": "True" if each == "Ready" else "False",
                    "lastTransitionTime": AT,
                    "lastHeartbeatTime": AT,
                }
                for each in conditions
            ],
            "images": [
                {"names": [f"registry.example/image-{each}@sha256:{number:064x}"], "sizeBytes": 1}
                for each in range(50)
            ],
        },
    }


def namespace(number: int) -> Object:
    labels = {"ip-reserve": "enabled"}
    return {"metadata": metadata("namespace", f"team-{number}", number, {}) | {"labels": labels}}
