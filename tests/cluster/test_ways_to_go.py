"""Addresses are reserved before their pod is gone, by each way in which the real API server and controllers end it.

Each test has pods with an IPv4 address, with an IPv6 address, and with one of each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from itertools import cycle
from typing import Any

import pytest

from dev.judge.reservation import KeptOutOfCirculation
from dev.lab.nodes import NODES, POD_ADDRESSES, PODS_PER_NODE, kwok_node
from dev.lab.session import Lab
from dev.lab.waiting import at_most
from dev.lab.watching import addresses
from dev.outside import SKEW, Outside, judged
from kube.client import Resource
from kube.errors import TooManyRequests
from kube.resources import NAMESPACES
from kube.types import INSTANCE_TYPE, Pod
from tests.cluster import workloads
from tests.cluster.workloads import GROUPS, SECONDS

REPLICAS = 6
GIVEN_BACK = 120 + SECONDS
CPU = "5"
"""What each pod requests of the 32 of its node."""
DELETED, UNREADY = 100, 101
"""Numbers of the nodes that are lost."""
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets")
PREFIX = 0xFD00 << 112
FAMILIES: tuple[Callable[[str], list[str]], ...] = (
    lambda ipv4: [ipv4],
    lambda ipv4: [ipv6_of(ipv4)],
    lambda ipv4: [ipv4, ipv6_of(ipv4)],
)
"""Of addresses, where kwok gives IPv4 addresses only."""


def pods_of_each_family(lab: Lab, namespace: str, replicas: int = REPLICAS) -> list[Pod]:
    container = {"name": "redis", "image": "redis", "resources": {"requests": {"cpu": CPU}}}
    pods = workloads.running_statefulset(lab, namespace, replicas, name=namespace, containers=[container])
    return in_each_family(lab, pods)


def ipv6_of(ipv4: str) -> str:
    """An IPv6 address that no pod with another IPv4 address has."""
    return str(IPv6Address(PREFIX + int(IPv4Address(ipv4))))


def in_each_family(lab: Lab, pods: Sequence[Pod]) -> list[Pod]:
    """*pods*, in turn, with their IPv4 address, with an IPv6 address, and with both, as their kubelet would say."""
    given = [family(pod.status.pod_ip) for pod, family in zip(pods, cycle(FAMILIES), strict=False)]
    return [
        workloads.patch_status(lab, pod, podIP=ips[0], podIPs=[{"ip": ip} for ip in ips])
        for pod, ips in zip(pods, given, strict=True)
    ]


@contextmanager
def witnessed(lab: Lab, group: str, namespace: str) -> Iterator[Outside]:
    """No address of a pod of *namespace* is free from the end of its pod on."""
    held = KeptOutOfCirculation(3600.0, SKEW)
    with judged(lab, [held], GROUPS[group], namespace=namespace) as outside:
        yield outside


def await_gone(lab: Lab, pods: Sequence[Pod]) -> None:
    namespace = pods[0].metadata.namespace
    lab.wait(lambda: not uids(pods) & uids(workloads.pods_of(lab, namespace)), 2 * SECONDS, "the pods to go")


def await_gone_and_reserved_in_time(lab: Lab, outside: Outside, pods: Sequence[Pod]) -> None:
    await_gone(lab, pods)
    assert outside.findings() == []


def assert_held(lab: Lab, group: str, pods: Sequence[Pod], *, late: bool = False) -> None:
    held = [each for each in workloads.all_records(lab, group) if each.uid in uids(pods)]
    expected = {(pod.metadata.uid, cidr, late) for pod in pods for cidr in addresses(pod)}
    assert {(each.uid, each.cidr, each.late) for each in held} == expected


def uids(pods: Sequence[Pod]) -> set[str]:
    return {pod.metadata.uid for pod in pods}


def delete_by_force(lab: Lab, namespace: str) -> None:
    lab.kubectl("delete", "pods", "--all", "-n", namespace, "--force", "--grace-period=0", "--wait=false")


def delete_namespace(lab: Lab, namespace: str) -> None:
    """With pods of no workload before Kubernetes 1.33, which may delete workloads first: that excuses their pods."""
    if server_version(lab) < (1, 33):
        lab.kubectl("delete", "statefulset", "--all", "-n", namespace, "--cascade=orphan")
    lab.client.delete(NAMESPACES, namespace)


def server_version(lab: Lab) -> tuple[int, ...]:
    server = json.loads(lab.kubectl("version", "--output=json").stdout)["serverVersion"]["gitVersion"]
    return tuple(int(part) for part in server.removeprefix("v").split(".")[:2])


def evict_all(lab: Lab, namespace: str) -> None:
    for pod in workloads.pods_of(lab, namespace):
        workloads.evict(lab, pod)


def drain_all_nodes(lab: Lab, namespace: str) -> None:
    nodes = nodes_of(lab, namespace)
    try:
        selector = f"--pod-selector=app={namespace}"
        lab.kubectl("drain", *nodes, "--ignore-daemonsets", "--force", at_most(2 * SECONDS), selector)
    finally:
        lab.kubectl("uncordon", *nodes)


def preempt_all(lab: Lab, namespace: str) -> None:
    """On each node there comes a pod of higher priority that needs all of it."""
    container = {"name": "urgent", "image": "urgent", "resources": {"requests": {"cpu": "32"}}}
    spec = {"priorityClassName": "system-cluster-critical", "containers": [container]}
    for node in nodes_of(lab, namespace):
        pinned = {"nodeSelector": {"kubernetes.io/hostname": node}}
        workloads.create_pod(lab, namespace, f"on-{node}", {"app": "urgent"}, **spec, **pinned)


def nodes_of(lab: Lab, namespace: str) -> set[str]:
    return {pod.spec.node_name for pod in workloads.pods_of(lab, namespace)}


WAYS: tuple[Callable[[Lab, str], None], ...] = (
    delete_by_force,
    workloads.delete_collection,
    delete_namespace,
    drain_all_nodes,
    preempt_all,
)
IN_BOTH_GROUPS = (workloads.delete_collection, delete_namespace, drain_all_nodes)


def _marks(go: Callable[[Lab, str], None], group: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.promise] if group == "v3" and go in IN_BOTH_GROUPS else []


@pytest.mark.parametrize(
    ("go", "group"),
    [
        pytest.param(go, group, id=f"{go.__name__.replace('_', ' ')}-{group}", marks=_marks(go, group))
        for go in WAYS
        for group in (GROUPS if go in IN_BOTH_GROUPS else ["v3"])
    ],
)
def test_each_address_is_reserved_before_its_pod_is_gone(
    lab: Lab, group: str, redis: str, go: Callable[[Lab, str], None]
) -> None:
    pods = pods_of_each_family(lab, redis)
    with witnessed(lab, group, redis) as outside:
        go(lab, redis)
        await_gone_and_reserved_in_time(lab, outside, pods)

    assert_held(lab, group, pods)


@pytest.mark.nightly
@pytest.mark.parametrize("group", ["v3"])
def test_an_eviction_that_a_budget_refuses_reserves_only_for_a_while(
    lab: Lab, group: str, redis: str
) -> None:
    pods = pods_of_each_family(lab, redis, replicas=len(FAMILIES))
    budget = {"minAvailable": "100%", "selector": {"matchLabels": {"app": redis}}}
    body = {"apiVersion": BUDGETS.api_version, "kind": "PodDisruptionBudget", "spec": budget}
    lab.client.create(BUDGETS, body | {"metadata": {"name": "all"}}, redis)
    with witnessed(lab, group, redis) as outside:
        for pod in pods:
            with pytest.raises(TooManyRequests, match="disruption budget"):
                workloads.evict(lab, pod)
        lab.wait(lambda: given_back_events(lab, redis) == uids(pods), GIVEN_BACK, "an event for each pod")
        assert not uids(pods) & workloads.records(lab, group).keys()

        assert uids(pods) <= uids(workloads.pods_of(lab, redis))
        lab.client.delete(BUDGETS, "all", redis)
        evict_all(lab, redis)
        await_gone_and_reserved_in_time(lab, outside, pods)

    assert_held(lab, group, pods)


def given_back_events(lab: Lab, namespace: str) -> set[str]:
    return {event["involvedObject"]["uid"] for event in workloads.events(lab, namespace, "IPGivenBack")}


@pytest.mark.promise
@pytest.mark.parametrize("group", ["v3"])
def test_a_kubelet_eviction_is_reserved_late_in_each_family_but_before_the_object_is_gone(
    lab: Lab, group: str, redis: str
) -> None:
    pods = pods_of_each_family(lab, redis)
    with witnessed(lab, group, redis) as outside:
        outside.disturb(*(pod.metadata.name for pod in pods))
        for pod in pods:
            workloads.patch_status(lab, pod, phase="Failed", reason="Evicted")
        # Its StatefulSet deletes a failed pod at once, to make another.
        await_gone_and_reserved_in_time(lab, outside, pods)

    assert_held(lab, group, pods, late=True)
    assert {workloads.records(lab, group)[uid].reason for uid in uids(pods)} == {"evicted by the kubelet"}
    lab.wait(lambda: workloads.events(lab, redis, "IPReservedLate"), SECONDS, "the Event")


@dataclass(frozen=True)
class Lost:
    """Two nodes that were lost when the tests of this file began: their pods take up to a minute to go."""

    outside: Outside
    deleted: Sequence[Pod]
    """Pods of a node that was deleted: the garbage collector of pods waits 40 s and looks every 20 s."""
    unready: Sequence[Pod]
    """Pods of a node that is not ready: its controller looks every 25 s."""


@pytest.fixture(scope="module", autouse=True)
def lost(lab_v3: Lab) -> Iterator[Lost]:
    lab = lab_v3
    unready, deleted = (workloads.reserved_namespace(lab.client, each) for each in ("t-lost", "t-deleted"))
    with witnessed(lab, "v3", unready) as outside:
        found = Lost(outside, on_a_node(lab, deleted, DELETED), on_a_node(lab, unready, UNREADY))
        lab.client.delete(NODES, node_name(DELETED))
        lab.client.patch(NODES.sub("status"), node_name(UNREADY), {"status": readiness("False")})
        yield found
    lab.kubectl("delete", "namespace", unready, deleted, "--wait=false")
    lab.kubectl("delete", "node", node_name(UNREADY))


def node_name(number: int) -> str:
    return f"kwok-{number}"


def readiness(status: str) -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": status, "reason": "KubeletSaidSo"}]}


def on_a_node(lab: Lab, namespace: str, number: int) -> list[Pod]:
    """Pods on a new node that neither the scheduler nor kwok touches: nothing there ends by itself."""
    node = kwok_node(number)
    del node["metadata"]["labels"][INSTANCE_TYPE]
    node["spec"]["unschedulable"] = True
    node["status"] |= readiness("True")
    lab.client.create(NODES, node)
    pods = [run_by_hand(lab, namespace, number, nth) for nth in range(len(FAMILIES))]
    return in_each_family(lab, pods)


def run_by_hand(lab: Lab, namespace: str, number: int, nth: int) -> Pod:
    name, address = f"{node_name(number)}-{nth}", str(POD_ADDRESSES[number * PODS_PER_NODE + nth])
    at_once = [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 0,
        }
        for key in ("not-ready", "unreachable")
    ]
    workloads.create_pod(lab, namespace, name, nodeName=node_name(number), tolerations=at_once)
    pod = workloads.get_pod(lab, namespace, name)
    return workloads.patch_status(lab, pod, phase="Running", podIP=address, podIPs=[{"ip": address}])


def test_pods_of_a_node_that_is_not_ready_are_reserved_when_they_are_evicted_by_its_taint(
    lab_v3: Lab, lost: Lost
) -> None:
    lab, pods = lab_v3, lost.unready

    def terminating() -> bool:
        found = [each for each in workloads.pods_of(lab, "t-lost") if each.metadata.uid in uids(pods)]
        return all(each.terminating for each in found) and len(found) == len(pods)

    lab.wait(terminating, 2 * SECONDS, "the pods of the node to be deleted")
    assert_held(lab, "v3", pods)
    # They stay like this until the node is marked as shut down.
    lab.kubectl(
        "taint", "node", node_name(UNREADY), "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    )
    await_gone_and_reserved_in_time(lab, lost.outside, pods)
    assert_held(lab, "v3", pods)


@pytest.mark.promise
def test_pods_of_a_deleted_node_are_reserved_before_they_are_collected(lab_v3: Lab, lost: Lost) -> None:
    """Their collector marks them as failed before: whether a record was late is what tells of the order."""
    await_gone(lab_v3, lost.deleted)
    assert_held(lab_v3, "v3", lost.deleted)
