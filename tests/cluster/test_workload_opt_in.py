"""A running Deployment and StatefulSet opt in, and out again, and no pod is restarted for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from api.ip_reservation import RESERVE, RESERVE_FROM
from dev.lab.bootstrap import running
from dev.lab.install import merged
from dev.lab.session import Lab
from kube.resources import DEPLOYMENTS, PODS, STATEFUL_SETS
from kube.types import Pod
from tests.cluster import workloads
from tests.cluster.workloads import SECONDS, records

VALUES = merged(
    workloads.VALUES,
    {
        # Else pods of StatefulSets are selected anyway.
        "ipReservation": {
            "labelSelector": {"matchExpressions": [{"key": "brokerId", "operator": "Exists"}]},
            "workloadOptIn": True,
        },
        "replicaCount": 1,
        "controllers": {"replicaCount": 1},
    },
)
KINDS = {"Deployment": DEPLOYMENTS, "StatefulSet": STATEFUL_SETS}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running(values=VALUES, calico="projectcalico.org/v3", nodes=1) as up:
        yield up


@pytest.mark.promise
@pytest.mark.parametrize("kind", KINDS)
def test_a_running_workload_opts_in_and_out_without_a_restart(lab: Lab, kind: str) -> None:
    namespace = workloads.reserved_namespace(lab.client, f"t-{kind.lower()}")
    before = started(lab, kind, namespace)
    control = going(lab, before[0])
    workloads.settle(lab, "v3")
    assert control.metadata.uid not in records(lab, "v3")

    pods = running_pods(lab, namespace)
    annotate(lab, kind, namespace, f"{RESERVE}=true")
    copy = {RESERVE: "true", RESERVE_FROM: f"{kind}/redis=true"}
    lab.wait(lambda: annotations(lab, namespace) == [copy, copy], SECONDS, "all pods to be annotated")
    assert uids(workloads.pods_of(lab, namespace)) == uids(pods)

    gone = going(lab, pods[0])
    assert records(lab, "v3")[gone.metadata.uid].late is False
    running_pods(lab, namespace)
    lab.wait(lambda: annotations(lab, namespace) == [copy, copy], SECONDS, "the next pod to be annotated")

    pods = running_pods(lab, namespace)
    annotate(lab, kind, namespace, f"{RESERVE}-")
    lab.wait(lambda: annotations(lab, namespace) == [{}, {}], SECONDS, "the copies to be removed")
    assert uids(workloads.pods_of(lab, namespace)) == uids(pods)
    left = going(lab, pods[0])
    workloads.settle(lab, "v3")
    assert left.metadata.uid not in records(lab, "v3")


def started(lab: Lab, kind: str, namespace: str) -> list[Pod]:
    of_kind = {"serviceName": "redis", "podManagementPolicy": "Parallel"} if kind == "StatefulSet" else {}
    body = workloads.workload(kind, "redis", workloads.pod_template({}), replicas=2, **of_kind)
    lab.client.create(KINDS[kind], body, namespace)
    return running_pods(lab, namespace)


def running_pods(lab: Lab, namespace: str) -> list[Pod]:
    def both() -> list[Pod] | None:
        found = workloads.pods_of(lab, namespace)
        are_up = all(each.status.addresses and not each.terminating for each in found)
        return found if len(found) == 2 and are_up else None

    return lab.wait(both, 2 * SECONDS, f"two pods of {namespace} to run")


def going(lab: Lab, pod: Pod) -> Pod:
    """*pod*, which is gone then."""
    at = pod.metadata
    lab.client.delete(PODS, at.name, at.namespace)
    lab.wait(
        lambda: at.uid not in uids(workloads.pods_of(lab, at.namespace)), SECONDS, f"pod {at.name} to be gone"
    )
    return pod


def annotate(lab: Lab, kind: str, namespace: str, what: str) -> None:
    lab.kubectl("annotate", kind, "redis", "-n", namespace, what)


def annotations(lab: Lab, namespace: str) -> list[Mapping[str, str]]:
    return [ours(each) for each in workloads.pods_of(lab, namespace) if not each.terminating]


def ours(pod: Pod) -> Mapping[str, str]:
    return {name: value for name, value in pod.metadata.annotations.items() if name.startswith(RESERVE)}


def uids(pods: list[Pod]) -> set[str]:
    return {each.metadata.uid for each in pods}
