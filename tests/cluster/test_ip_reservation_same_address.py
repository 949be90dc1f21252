"""A StatefulSet's pod gets the address of its predecessor, by Calico's own allocator, or soon another one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from api.same_address import IP_ADDRS, SAME_ADDRESS_FROM
from dev.bench.ip_reservation.allocator import ipam
from dev.lab import install
from dev.lab.errors import LabError
from dev.lab.session import Lab
from kube.resources import PODS, STATEFUL_SETS
from kube.types import Pod
from tests.cluster import workloads
from tests.cluster.calico_allocator import allocating
from tests.cluster.workloads import SECONDS, VALUES

POOL, NODE, OTHER_NODE, OTHERS = "172.31.7.0/28", "of-calico", "another", "others"
SAME = install.merged(VALUES, {"ipReservation": {"sameAddress": {"enabled": True, "timeout": "3s"}}})
ASKING = (IP_ADDRS, SAME_ADDRESS_FROM)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """With Calico's allocator, and nodes that have no kubelet but the test."""
    with allocating(SAME, NODE, OTHER_NODE) as up:
        ipam(up, "pool", POOL, "--block-size", "28")
        yield up


@dataclass
class Kubelet:
    """Of all pods of a namespace; a pod that asks for an address gets that one or none, as by Calico's CNI plugin."""

    lab: Lab
    namespace: str
    refused: list[str] = field(default_factory=list)

    def start(self, name: str, on: str = NODE) -> str:
        """The address with which a pod comes up; the kubelet repeats what Calico refuses."""
        address = self.lab.wait(lambda: self._assigned(name, on), SECONDS, f"an address for {name}")
        ready = {"type": "Ready", "status": "True"}
        status = {"podIP": address, "podIPs": [{"ip": address}], "conditions": [ready]}
        workloads.patch_status(self.lab, self.pod(name), phase="Running", **status)
        return address

    def stop(self, name: str) -> Pod:
        """Delete it as a user does; its address is with Calico again. The next one, which waits for its start."""
        pod = self.pod(name)
        self.lab.client.delete(PODS, name, self.namespace)
        ipam(self.lab, "release", *pod.status.addresses)
        self.lab.client.delete(PODS, name, self.namespace, grace_seconds=0)
        return self.lab.wait(lambda: self._next(pod), SECONDS, f"the successor of {name}")

    def pod(self, name: str) -> Pod:
        return workloads.get_pod(self.lab, self.namespace, name)

    def asking(self, name: str) -> Mapping[str, str]:
        return {each: value for each, value in self.pod(name).metadata.annotations.items() if each in ASKING}

    def _next(self, pod: Pod) -> Pod | None:
        found = {each.metadata.name: each for each in workloads.pods_of(self.lab, self.namespace)}
        new = found.get(pod.metadata.name)
        return new if new and new.metadata.uid != pod.metadata.uid else None

    def _assigned(self, name: str, on: str) -> str:
        found = {each.metadata.name: each for each in workloads.pods_of(self.lab, self.namespace)}
        if name not in found:
            return ""
        wanted = json.loads(found[name].metadata.annotations.get(IP_ADDRS, '["1"]'))
        try:
            answer: dict[str, Any] = ipam(self.lab, "assign", *wanted, "--node", on, "--handle", name)
        except LabError as error:
            self.refused.append(str(error))
            return ""
        return "".join(answer["assigned"])


def stateful_set(lab: Lab, name: str, replicas: int = 1, **annotations: str) -> Kubelet:
    """In a namespace of this name; all of its pods have come up."""
    namespace = workloads.reserved_namespace(lab.client, f"t-{name}")
    template = workloads.pod_template({}, nodeName=NODE) | {"metadata": {"annotations": annotations}}
    spec = {"replicas": replicas, "serviceName": "redis", "podManagementPolicy": "Parallel"}
    lab.client.create(STATEFUL_SETS, workloads.workload("StatefulSet", "redis", template, **spec), namespace)
    return Kubelet(lab, namespace)


def all_others(lab: Lab) -> Sequence[str]:
    """All addresses that other pods can get, until they are returned."""
    found: Sequence[str] = ipam(lab, "assign", "20", "--node", NODE, "--handle", OTHERS)["assigned"]
    return found


def has_ended(lab: Lab, kubelet: Kubelet, reason: str) -> bool:
    return bool(workloads.events(lab, kubelet.namespace, reason))


@pytest.mark.promise
def test_the_same_pod_gets_the_same_address_on_whichever_node_it_comes_up(lab: Lab) -> None:
    kubelet = stateful_set(lab, "same")
    before = kubelet.start("redis-0")
    uid = kubelet.pod("redis-0").metadata.uid
    assert kubelet.asking("redis-0") == {}

    kubelet.stop("redis-0")
    value = json.dumps([before])
    assert kubelet.asking("redis-0") == {IP_ADDRS: value, SAME_ADDRESS_FROM: f"{uid}={value}"}
    others = all_others(lab)
    assert before not in others, "it is reserved"

    assert kubelet.start("redis-0", on=OTHER_NODE) == before
    ipam(lab, "release", *others)
    lab.wait(lambda: IP_ADDRS not in kubelet.asking("redis-0"), SECONDS, "the pod to ask no longer")
    lab.wait(lambda: uid not in workloads.records(lab, "v1"), SECONDS, "the reservation to end")
    lab.wait(lambda: has_ended(lab, kubelet, "SameAddress"), SECONDS, "its Event")

    kubelet.stop("redis-0")
    assert json.loads(kubelet.asking("redis-0")[IP_ADDRS]) == [before], "and once more"
    assert kubelet.start("redis-0") == before
    assert kubelet.refused == []
