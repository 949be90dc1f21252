"""Workloads as charts of the field make them, and the storage that they ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

Raw = dict[str, Any]
FOLDER = Path(__file__).parent / "data" / "field_charts"
CHARTS = sorted(path.stem for path in FOLDER.glob("*.yaml"))
LOCAL_PATH = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "local-path"},
    "provisioner": "rancher.io/local-path",
    "volumeBindingMode": "WaitForFirstConsumer",
}
"""As Rancher's provisioner has it: a volume is a directory of the node that the pod was scheduled to."""


def workloads_of(chart: str) -> list[Raw]:
    return list(yaml.safe_load_all((FOLDER / f"{chart}.yaml").read_text()))


def replicas_of(workload: Raw) -> int:
    """Of a Job, one."""
    return int(workload["spec"].get("replicas", 1))


def accounts_of(workloads: list[Raw]) -> set[str]:
    return {each["spec"]["template"]["spec"]["serviceAccountName"] for each in workloads}


def local_volume(name: str, node: str, claim: Raw) -> Raw:
    """What the provisioner makes for a *claim* whose pod was scheduled to *node*."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    spec = {
        "accessModes": claim["spec"]["accessModes"],
        "capacity": claim["spec"]["resources"]["requests"],
        "claimRef": {
            "kind": "PersistentVolumeClaim",
            "namespace": claim["metadata"]["namespace"],
            "name": claim["metadata"]["name"],
            "uid": claim["metadata"]["uid"],
        },
        "hostPath": {"path": f"/opt/local-path-provisioner/{name}", "type": "DirectoryOrCreate"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": claim["spec"]["storageClassName"],
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
