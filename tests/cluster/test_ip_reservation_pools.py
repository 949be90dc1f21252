"""Reservations take no address that a new pod needs: Calico's own allocator in a small pool, and a storm."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from bench.ip_reservation.allocator import ipam
from kube.client import Resource
from kube.types import Pod
from lab import binaries, install
from lab.session import Lab
from lab.waiting import at_most, stretch
from tests.calico_pools import POOLS, block, pool
from tests.cluster import workloads
from tests.cluster.calico_allocator import allocating
from tests.cluster.test_cli import shown
from tests.cluster.workloads import PODS, SECONDS, VALUES

pytestmark = pytest.mark.nightly

POOL, NODE, PODS_OF_STORM = "172.31.0.0/26", "of-calico", 40
FOLLOWED = {"enabled": True, "history": "1h"}
WITH_POOLS = install.merged(VALUES, {"ipReservation": {"pools": FOLLOWED, "maxPoolShare": 100}})
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)


@pytest.fixture(scope="module")
def pool_lab() -> Iterator[Lab]:
    """With a node whose pods get their addresses from Calico's allocator."""
    with allocating(WITH_POOLS, NODE) as up:
        yield up


@dataclass
class Kubelet:
    """Gives pods the addresses that Calico assigns, and notes which of them it *refused* one at first."""

    lab: Lab
    namespace: str
    refused: list[str] = field(default_factory=list)
    running: dict[str, Pod] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(self) -> str:
        """A new pod, once it has an address."""
        name = f"redis-{next(self._numbers)}"
        # Its node never says that it is ready: after some minutes that would end the pod.
        forever = {"tolerations": [{"operator": "Exists"}]}
        workloads.create_pod(self.lab, self.namespace, name, nodeName=NODE, **forever)
        while not (address := self._assigned(name)):
            self.refused.append(name)
            time.sleep(1.0)  # as a kubelet, which tries again
        ips = {"podIP": address, "podIPs": [{"ip": address}]}
        pod = workloads.get_pod(self.lab, self.namespace, name)
        self.running[name] = workloads.patch_status(self.lab, pod, phase="Running", **ips)
        return name

    def stop(self, name: str) -> None:
        """Delete it as a user does; it is gone when its address has been returned to Calico."""
        [address] = self.running.pop(name).status.addresses
        self.lab.client.delete(PODS, name, self.namespace)
        ipam(self.lab, "release", address)
        self.lab.client.delete(PODS, name, self.namespace, grace_seconds=0)

    def replace(self, name: str) -> None:
        self.stop(name)
        self.start()

    def _assigned(self, name: str) -> str:
        answer: dict[str, Any] = ipam(self.lab, "assign", "1", "--node", NODE, "--handle", name)
        return "".join(answer["assigned"])


def storm(kubelet: Kubelet, names: Sequence[str], refusals: int) -> None:
    """Replace all of *names*, two at a time; ends early at so many refusals."""
    with ThreadPoolExecutor(2) as workers:
        for name in names:
            workers.submit(lambda name=name: len(kubelet.refused) < refusals and kubelet.replace(name))


@pytest.mark.promise
def test_no_new_pod_of_a_storm_lacks_an_address_because_of_reservations(pool_lab: Lab) -> None:
    namespace = workloads.reserved_namespace(pool_lab.client, "t-storm")
    ipam(pool_lab, "pool", POOL, "--block-size", "26")
    kubelet = Kubelet(pool_lab, namespace)
    for _ in range(PODS_OF_STORM):
        kubelet.start()
    assert kubelet.refused == []

    # The control: where all that is left may be reserved, new pods wait.
    waiting = threading.Thread(target=storm, args=(kubelet, [*kubelet.running], 2), daemon=True)
    waiting.start()
    pool_lab.wait(lambda: len(kubelet.refused) >= 2, 2 * SECONDS, "the allocator to refuse addresses")
    pool_lab.wait(lambda: free(pool_lab) == 0, SECONDS, "the leader to know that none is free")

    # What is reserved is limited: those that wait get addresses, and no pod of another storm has to.
    workloads.reconfigure(pool_lab, install.merged(WITH_POOLS, {"ipReservation": {"maxPoolShare": 50}}))
    waiting.join(SECONDS * stretch())
    assert not waiting.is_alive(), "pods still wait for addresses"
    kubelet.refused.clear()
    storm(kubelet, [*kubelet.running], PODS_OF_STORM)

    assert kubelet.refused == []
    assert len(kubelet.running) == PODS_OF_STORM
    reserved, room = len(workloads.records(pool_lab, "v1")), 64 - PODS_OF_STORM
    assert 0 < reserved <= room
    pool_lab.wait(lambda: free(pool_lab) >= room / 2, SECONDS, "half of the room to be free")
    # The leader counts and reports what it has written.
    pool_lab.wait(lambda: early(pool_lab) >= PODS_OF_STORM - room, SECONDS, "what was released to be counted")
    pool_lab.wait(lambda: workloads.events(pool_lab, "default", "IPReleasedEarly"), SECONDS, "the Event")


def free(lab: Lab, name: str = "pool-172-31-0-0-26") -> float | None:
    """Of the pool, as the leader knows it."""
    series = f'drawbridge_pool_free_addresses{{pool="{name}"}} '
    lines = [line for each in workloads.metrics(lab, "controllers") for line in each.splitlines()]
    found = [float(line.removeprefix(series)) for line in lines if line.startswith(series)]
    return found[0] if found else None


def early(lab: Lab) -> float:
    series = 'drawbridge_reservations_released_total{cause="pool"}'
    return sum(
        float(line.split()[-1])
        for each in workloads.metrics(lab, "controllers")
        for line in each.splitlines()
        if line.startswith(series)
    )


@pytest.mark.promise
def test_who_had_an_address_is_known_after_the_leader_that_saw_it_was_killed(pool_lab: Lab) -> None:
    pool_lab.wait(lambda: not past(pool_lab, "172.31.0.1")["unknown"], 2 * SECONDS, "a history to begin")
    if not pools(pool_lab):
        ipam(pool_lab, "pool", POOL, "--block-size", "26")
    [address] = ipam(pool_lab, "assign", "1", "--node", NODE, "--handle", "kafka-0")["assigned"]
    ipam(pool_lab, "release", address)
    pool_lab.wait(lambda: "kafka-0" in former(pool_lab, address), 2 * SECONDS, "the leader to store it")

    before = len(past(pool_lab, address)["gaps"])
    pool_lab.kubectl(
        "delete", "pod", "-n", "drawbridge", "-l", "app.kubernetes.io/component=controllers", "--force"
    )
    pool_lab.wait(
        lambda: len(past(pool_lab, address)["gaps"]) > before, 2 * SECONDS, "the next leader to note the gap"
    )
    [found] = [each for each in past(pool_lab, address)["former"] if each["pod"] == "kafka-0"]
    assert found["node"] == NODE


def past(lab: Lab, address: str) -> dict[str, Any]:
    found: dict[str, Any] = shown(lab, "explain", "ip", address)["past"]
    return found


def former(lab: Lab, address: str) -> list[str]:
    return [each["pod"] for each in past(lab, address)["former"]]


def pools(lab: Lab) -> list[dict[str, Any]]:
    """There are some when the other scene has run before."""
    return lab.client.list(POOLS).items


def test_pools_are_followed_in_the_group_that_calico_serves_natively(pool_lab: Lab) -> None:
    """The controllers look for it when they start."""
    resources = [native(pool_lab, plural) for plural in ("ippools", "ipamblocks")]
    bodies = pool("172.31.1.0/26", "native"), block("172.31.1.0/26", "172.31.1.1")
    for resource, kind, body in zip(resources, ("IPPool", "IPAMBlock"), bodies, strict=True):
        pool_lab.client.create(resource, {"apiVersion": resource.api_version, "kind": kind} | body)
    controllers = ("deployment/drawbridge-controllers", "-n", "drawbridge")
    pool_lab.kubectl("rollout", "restart", *controllers)
    pool_lab.kubectl("rollout", "status", *controllers, at_most(2 * SECONDS))

    pool_lab.wait(lambda: free(pool_lab, "native") == 63, 2 * SECONDS, "the leader to know that pool")
    assert free(pool_lab) is None


def native(lab: Lab, plural: str) -> Resource:
    """Served as Calico does without an API server of its own, by the definition of the other group."""
    group, version = "projectcalico.org", "v3"
    path = binaries.calico_crds() / f"crd.projectcalico.org_{plural}.yaml"
    definition = yaml.safe_load(path.read_text())
    definition["metadata"] = {"name": f"{plural}.{group}"}
    definition["spec"]["group"] = group
    for each in definition["spec"]["versions"]:
        each["name"] = version
    lab.client.create(DEFINITIONS, definition)
    resource = Resource(group, version, plural, namespaced=False)
    lab.wait(lambda: lab.client.serves(resource), SECONDS, f"{plural} to be served")
    return resource
