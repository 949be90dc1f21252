"""IP reservation through a real API server: TLS, RBAC, two webhook replicas and the controllers as processes."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dev.lab.session import Lab
from kube.client import Resource
from kube.resources import PODS
from tests.cluster import workloads
from tests.cluster.workloads import GROUPS, SECONDS, records


def test_a_pod_that_is_deleted_by_force_has_one_record_though_each_replica_is_called(
    lab_v3: Lab,
) -> None:
    """The API server validates such a deletion twice: by its cache, and by what is stored."""
    namespace = workloads.reserved_namespace(lab_v3.client, "t-by-force")
    with ThreadPoolExecutor(20) as pool:
        pods = list(
            pool.map(lambda number: workloads.running_pod(lab_v3, namespace, f"redis-{number}"), range(60))
        )
        calls = asked(lab_v3)
        for pod in pods:
            pool.submit(lab_v3.client.delete, PODS, pod.metadata.name, namespace, grace_seconds=0)
    uids = sorted(pod.metadata.uid for pod in pods)

    def recorded() -> list[str]:
        return sorted(each.uid for each in workloads.all_records(lab_v3, "v3") if each.namespace == namespace)

    lab_v3.wait(lambda: recorded() == uids, SECONDS, "one record for each pod")
    assert asked(lab_v3) > calls + len(pods), "no deletion was validated twice: this shows nothing"
    lab_v3.kubectl("delete", "namespace", namespace, "--wait=false")


def asked(lab: Lab) -> float:
    return sum(
        workloads.sample(each, "drawbridge_admission_requests_total")
        for each in workloads.metrics(lab, "webhook")
    )


@pytest.mark.parametrize("group", [pytest.param("v3", marks=pytest.mark.promise), "v1"])
def test_addresses_are_released_by_age(lab: Lab, group: str, redis: str) -> None:
    workloads.running_statefulset(lab, redis, 3)
    workloads.delete_collection(lab, redis)
    lab.wait(
        lambda: any(held.namespace == redis for held in records(lab, group).values()), SECONDS, "reservations"
    )

    with workloads.configured(lab, ipReservation={"duration": "2s"}):
        lab.kubectl("delete", "statefulset", "redis", "-n", redis)
        lab.wait(lambda: not records(lab, group), SECONDS, "every address to be released")
        # One that its server may still append to is emptied first.
        lab.wait(lambda: not lab.client.list(GROUPS[group]).items, SECONDS, "every segment to be deleted")


@pytest.mark.promise
def test_a_bad_configuration_is_refused_and_the_last_good_one_stays(lab_v3: Lab) -> None:
    lab, redis = lab_v3, workloads.reserved_namespace(lab_v3.client, "t-bad-configuration")
    good = lab.kubectl(
        "get", "configmap", "drawbridge-config", "-n", "drawbridge", "-o", "jsonpath={.data.config\\.yaml}"
    ).stdout
    bad = good.replace("maxCount:", "maxCounts:")
    assert bad != good
    try:
        write_configuration(lab, bad)
        lab.wait(lambda: reload_states(lab) == {0.0}, SECONDS, "every process to refuse it")
        lab.wait(lambda: workloads.events(lab, "drawbridge", "ConfigurationRefused"), SECONDS, "the event")
        (message, *_) = {
            event["message"] for event in workloads.events(lab, "drawbridge", "ConfigurationRefused")
        }
        assert "ipReservation.maxCounts" in message
        assert "did you mean maxCount?" in message
        pod = workloads.running_pod(lab, redis, "a")
        lab.client.delete(PODS, "a", redis)
        assert pod.metadata.uid in records(lab, "v3")
    finally:
        write_configuration(lab, good)
    lab.wait(lambda: reload_states(lab) == {1.0}, SECONDS, "every process to apply it")


def write_configuration(lab: Lab, text: str) -> None:
    """As Helm applies it: its next upgrade would meet a field with another manager."""
    live = json.loads(
        lab.kubectl("get", "configmap", "drawbridge-config", "-n", "drawbridge", "-o", "json").stdout
    )
    metadata = {key: live["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    wanted = {key: live[key] for key in ("apiVersion", "kind")} | {"metadata": metadata}
    document = json.dumps(wanted | {"data": {"config.yaml": text}})
    # By force, as Helm 3 does not apply on the server: there its field is another manager's.
    lab.kubectl(
        "apply", "--server-side", "--force-conflicts", "--field-manager=helm", "-f", "-", stdin=document
    )


def reload_states(lab: Lab) -> set[float]:
    scrapes = workloads.metrics(lab, "webhook") + workloads.metrics(lab, "controllers")
    return {workloads.sample(each, "drawbridge_config_last_reload_successful") for each in scrapes}


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
    Resource("apps", "v1", "statefulsets"): {
        "replicas": 2,
        "serviceName": "a",
        "selector": {"matchLabels": SELECTED | {"set": "2"}},
        "template": workloads.pod_template(SELECTED | {"set": "2"}),
    },
    Resource("apps", "v1", "daemonsets"): {
        "selector": {"matchLabels": SELECTED | {"set": "1"}},
        "template": workloads.pod_template(
            SELECTED | {"set": "1"}, nodeSelector={"kubernetes.io/hostname": "kwok-0"}
        ),
    },
    Resource("batch", "v1", "jobs"): {"template": workloads.pod_template(SELECTED, **ON_THE_LAB)},
}
KINDS = {
    "deployments": "Deployment",
    "statefulsets": "StatefulSet",
    "daemonsets": "DaemonSet",
    "jobs": "Job",
}


def test_nothing_is_written_for_pods_that_are_deleted_with_their_workload(lab_v3: Lab) -> None:
    namespace = workloads.reserved_namespace(lab_v3.client, "t-owners")
    for kind, spec in SPECS.items():
        head = {"apiVersion": kind.api_version, "kind": KINDS[kind.plural], "metadata": {"name": "a"}}
        lab_v3.client.create(kind, {**head, "spec": spec}, namespace)
    lab_v3.wait(lambda: are_running(lab_v3, namespace), 2 * SECONDS, "pods of each kind to run")

    lab_v3.kubectl("delete", ",".join(KINDS), "--all", "-n", namespace)
    lab_v3.wait(lambda: not workloads.pods_of(lab_v3, namespace), SECONDS, "the pods to be gone")
    workloads.settle(lab_v3, "v3")

    assert [held for held in records(lab_v3, "v3").values() if held.namespace == namespace] == []


def are_running(lab: Lab, namespace: str) -> bool:
    found = workloads.pods_of(lab, namespace)
    return len(found) == len(SPECS) + 1 and all(
        pod.status.phase == "Running" and pod.status.addresses for pod in found
    )
