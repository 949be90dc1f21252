"""What the leader looks up of an address: whether its workload is deleted, too, and whether its segment is in use."""

from __future__ import annotations

from typing import Any

from kube.client import Resource
from lab.session import Lab
from tests.cluster import workloads
from tests.cluster.workloads import GROUPS, records

SECONDS = 120
SELECTED = {"brokerId": "1"}
ASLEEP = {"name": "main", "image": "drawbridge", "command": ["python", "-c", "import time; time.sleep(600)"]}
ON_THE_LAB: dict[str, Any] = {
    "nodeSelector": {"drawbridge.io/lab": "node"},
    "tolerations": [{"key": "drawbridge.io/lab", "operator": "Exists"}],
    "containers": [ASLEEP],
    "restartPolicy": "Never",
}
"""For a Job's pod: kwok would have it end at once."""
SPECS: dict[Resource, dict[str, Any]] = {
    Resource("apps", "v1", "deployments"): {
        "replicas": 1,
        "selector": {"matchLabels": SELECTED},
        "template": workloads.pod_template(SELECTED),
    },
    Resource("apps", "v1", "daemonsets"): {
        "selector": {"matchLabels": SELECTED | {"set": "1"}},
        "template": workloads.pod_template(
            SELECTED | {"set": "1"}, nodeSelector={"kubernetes.io/hostname": "kwok-0"}
        ),
    },
    Resource("batch", "v1", "jobs"): {"template": workloads.pod_template(SELECTED, **ON_THE_LAB)},
}
KINDS = {"deployments": "Deployment", "daemonsets": "DaemonSet", "jobs": "Job"}


def test_nothing_is_written_for_pods_that_are_deleted_with_their_workload(lab_v3: Lab) -> None:
    namespace = workloads.reserved_namespace(lab_v3.client, "t-owners")
    for kind, spec in SPECS.items():
        head = {"apiVersion": kind.api_version, "kind": KINDS[kind.plural], "metadata": {"name": "a"}}
        lab_v3.client.create(kind, {**head, "spec": spec}, namespace)
    lab_v3.wait(lambda: are_running(lab_v3, namespace), SECONDS, "a pod of each kind to run")

    lab_v3.kubectl("delete", ",".join(KINDS), "--all", "-n", namespace)
    lab_v3.wait(lambda: not workloads.pods_of(lab_v3, namespace), SECONDS, "the pods to be gone")
    workloads.settle(lab_v3, "v3")

    assert [held for held in records(lab_v3, "v3").values() if held.namespace == namespace] == []


def are_running(lab: Lab, namespace: str) -> bool:
    found = workloads.pods_of(lab, namespace)
    return len(found) == len(SPECS) and all(
        pod.status.phase == "Running" and pod.status.addresses for pod in found
    )


def test_a_segment_is_deleted_when_it_is_empty_and_sealed(lab: Lab, group: str, redis: str) -> None:
    workloads.running_pod(lab, redis, "a")
    lab.client.delete(workloads.PODS, "a", redis)
    before = segments(lab, group)
    assert before

    soon = {"config": {"ipReserveTime": "1s"}, "ipReservation": {"segmentMaxAge": "1s"}}
    with workloads.configured(lab, **soon):
        lab.wait(lambda: before - segments(lab, group), SECONDS, "one of the segments to go")


def segments(lab: Lab, group: str) -> set[str]:
    return {each["metadata"]["name"] for each in lab.client.list(GROUPS[group]).items}
