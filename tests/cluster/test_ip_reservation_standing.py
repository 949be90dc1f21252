"""Addresses that Calico's own allocator gave are reserved while their pods live; then no deletion needs a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from api.ip_reservation import FINISHED, RESERVE_FINISHED
from api.standing import RESERVED, epoch_in
from dev.bench.ip_reservation.allocator import ipam
from dev.lab import install
from dev.lab.errors import LabError
from dev.lab.session import Lab
from kube.resources import NAMESPACES, PODS, VALIDATING_WEBHOOKS
from kube.types import Pod
from tests.cluster import workloads
from tests.cluster.calico_allocator import allocating
from tests.cluster.workloads import SECONDS, VALUES, scale

POOL, NODE, SIZE = "172.31.0.0/26", "of-calico", 64
AHEAD = install.merged(VALUES, {"ipReservation": {"standing": {"enabled": True}}})
SHOP = "ahead"


@pytest.fixture(scope="module")
def ahead() -> Iterator[Lab]:
    """With a pool of 64 addresses, and a node whose pods get theirs from Calico's allocator."""
    with allocating(AHEAD, NODE) as up:
        ipam(up, "pool", POOL, "--block-size", "26")
        workloads.reserved_namespace(up.client, SHOP)
        yield up


def started(lab: Lab, *names: str) -> list[Pod]:
    """Pods that run with addresses of the pool, on a node that is there: others are deleted as orphans after 40 s."""

    def start(name: str) -> Pod:
        [address] = ipam(lab, "assign", "1", "--node", NODE, "--handle", name)["assigned"]
        workloads.create_pod(lab, SHOP, name, nodeName=NODE, tolerations=[{"operator": "Exists"}])
        found = workloads.get_pod(lab, SHOP, name)
        return workloads.patch_status(lab, found, phase="Running", podIP=address, podIPs=[{"ip": address}])

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(start, names))


def marked(lab: Lab) -> list[Pod]:
    return [pod for pod in workloads.pods_of(lab, SHOP) if RESERVED in pod.metadata.annotations]


def ends(lab: Lab, pods: Sequence[Pod]) -> None:
    """As a kubelet ends them: it releases the address."""
    for pod in pods:
        lab.client.delete(PODS, pod.metadata.name, SHOP, grace_seconds=0)
        ipam(lab, "release", pod.status.pod_ips[0].ip)


@pytest.mark.promise
def test_while_no_server_answers_reserved_pods_are_deleted_and_their_addresses_are_given_to_no_other(
    ahead: Lab,
) -> None:
    pods = started(ahead, *(f"redis-{number}" for number in range(8)))
    ahead.wait(lambda: len(marked(ahead)) == len(pods), SECONDS, "all pods to be reserved ahead")
    scale(ahead, "webhook", 0)
    scale(ahead, "controllers", 0)

    ends(ahead, pods)

    left = SIZE - len(pods)
    given = ipam(ahead, "assign", str(left), "--node", NODE, "--handle", "others")["assigned"]
    assert not {*given} & {pod.status.pod_ips[0].ip for pod in pods}
    assert len(given) == left
    for address in given:
        ipam(ahead, "release", address)
    for component in ("webhook", "controllers"):
        scale(ahead, component, 2)


@pytest.mark.promise
def test_addresses_of_pods_that_finish_are_given_to_no_other_where_their_namespace_asks_for_it(
    ahead: Lab,
) -> None:
    """Whether they are deleted or not; Calico has the addresses back."""
    ask = {"metadata": {"annotations": {RESERVE_FINISHED: "true"}}}
    ahead.client.patch(NAMESPACES, SHOP, ask)
    pods = started(ahead, *(f"job-{number}" for number in range(3)))
    addresses = {pod.status.pod_ips[0].ip for pod in pods}
    ahead.wait(lambda: len(marked(ahead)) == len(pods), SECONDS, "all pods to be reserved ahead")
    for pod in pods:
        workloads.patch_status(ahead, pod, phase="Succeeded")
        ipam(ahead, "release", pod.status.pod_ips[0].ip)
    ahead.client.delete(PODS, "job-0", SHOP, grace_seconds=0)

    def finished() -> set[str]:
        held = workloads.all_records(ahead, "v1")
        return {each.cidr.removesuffix("/32") for each in held if each.reason == FINISHED and each.ended}

    ahead.wait(lambda: finished() == addresses, SECONDS, "the reservations to be of pods that finished")
    for name in ("job-1", "job-2"):
        ahead.client.delete(PODS, name, SHOP, grace_seconds=0)
    given = ipam(ahead, "assign", str(SIZE), "--node", NODE, "--handle", "others")["assigned"]
    assert given
    assert not {*given} & addresses
    for address in given:
        ipam(ahead, "release", address)


@pytest.mark.promise
def test_after_a_power_failure_all_pods_of_a_full_pool_find_addresses_without_a_leader(ahead: Lab) -> None:
    """Their sandboxes are gone, and Calico has released what they had."""
    before = {pod.metadata.uid for pod in workloads.pods_of(ahead, SHOP)}
    pods = started(ahead, *(f"kafka-{number}" for number in range(40)))
    ahead.wait(lambda: len(marked(ahead)) > 5, SECONDS, "some pods to be reserved ahead")
    assert not before

    def account() -> tuple[int, int, int]:
        """Marked pods, reserved addresses of pods, and addresses that neither pods nor held reservations have."""
        records = workloads.all_records(ahead, "v1")
        held, standing = (
            {each.cidr for each in records if bool(each.ended) is ends} for ends in (True, False)
        )
        return len(marked(ahead)), len(standing), SIZE - len(pods) - len(held)

    def fits() -> bool:
        marks, standing, free = account()
        return 0 < marks <= standing <= free

    # While the leader's copy of Calico's blocks is behind that of the pods, more are reserved than fit.
    with suppress(LabError):  # what there is in its place, the assertion shows
        ahead.wait(fits, SECONDS, "no more to be reserved ahead than are free")
    scale(ahead, "controllers", 0)
    marks, standing, free = account()
    assert 0 < marks <= standing <= free

    for pod in pods:
        ipam(ahead, "release", pod.status.pod_ips[0].ip)

    given = ipam(ahead, "assign", str(len(pods)), "--node", NODE, "--handle", "again")["assigned"]
    assert len(given) == len(pods)


@pytest.mark.promise
def test_a_configuration_that_is_deleted_takes_the_reservations_of_living_pods_with_it(ahead: Lab) -> None:
    """The controllers do not work meanwhile, as after any way of uninstalling."""
    found = ahead.client.get(VALIDATING_WEBHOOKS, "drawbridge")
    assert epoch_in(found)
    ahead.client.delete(VALIDATING_WEBHOOKS, "drawbridge")

    def standing() -> list[str]:
        addresses = {pod.status.pod_ips[0].ip for pod in marked(ahead)}
        return [
            each.cidr for each in workloads.all_records(ahead, "v1") if each.cidr.split("/")[0] in addresses
        ]

    ahead.wait(lambda: not standing(), SECONDS, "no address of a living pod to be reserved")
