"""Calico gives the address of a deleted pod to the next one only when Drawbridge has released it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from calico.segment import RELEASE
from dev.lab.node.cluster import POOLS, pool
from dev.lab.waiting import at_most
from kube.resources import PODS
from kube.types import Pod
from tests.cluster.elasticity import await_account
from tests.cluster.workloads import GROUPS, get_pod, messages, namespace
from tests.e2e.cluster import FIRST
from tests.e2e.real import Real

RESERVED, PLAIN = "198.18.200.1", "198.18.200.2"
"""The only address of its pool, for each test another one: a reservation outlives its pod."""
POOL = "single"
SECONDS = 120


@pytest.fixture
def single_address(request: pytest.FixtureRequest, real_nodes: Real) -> Iterator[str]:
    """The only address of a pool on the first node."""
    real_nodes.client.create(POOLS, pool(POOL, f"{request.param}/32", 32, real_nodes.workers[0]))
    yield request.param
    real_nodes.client.delete(POOLS, POOL)


@pytest.mark.parametrize("single_address", [RESERVED], indirect=True)
def test_the_address_of_a_deleted_pod_is_given_again_only_when_it_is_released(
    real_nodes: Real, single_address: str
) -> None:
    place = namespace(real_nodes.client, "addresses", **{"ip-reserve": "enabled"})
    create(real_nodes, place, "first")
    assert address_of(real_nodes, place, "first") == single_address
    delete(real_nodes, place, "first")
    create(real_nodes, place, "second")

    refused = "Assigned 0 out of 1 requested IPv4 addresses"
    real_nodes.wait(lambda: refused in events_of(real_nodes, place, "second"), SECONDS, "Calico to refuse")
    assert ip_of(real_nodes, place, "second") == ""

    release(real_nodes, single_address)
    assert address_of(real_nodes, place, "second") == single_address
    clean_up(real_nodes, place)


@pytest.mark.parametrize("single_address", [PLAIN], indirect=True)
def test_it_is_given_to_the_next_pod_at_once_where_nothing_is_reserved(
    real_nodes: Real, single_address: str
) -> None:
    """The control of the test above."""
    place = namespace(real_nodes.client, "not-reserved")
    create(real_nodes, place, "first")
    assert address_of(real_nodes, place, "first") == single_address
    delete(real_nodes, place, "first")
    create(real_nodes, place, "second")

    assert address_of(real_nodes, place, "second") == single_address
    clean_up(real_nodes, place)


def create(cluster: Real, place: str, name: str) -> None:
    """On the node of the pool, with the annotations of a user of Calico and of Drawbridge."""
    annotations = {"cni.projectcalico.org/ipv4pools": f'["{POOL}"]', "drawbridge.io/reserve-ip": "true"}
    server = {"name": "server", "image": FIRST, "command": ["python", "-m", "http.server"]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "containers": [server],
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": cluster.workers[0]},
        },
    }
    await_account(cluster, place)
    cluster.client.create(PODS, pod, place)


def delete(cluster: Real, place: str, name: str) -> None:
    cluster.kubectl("--namespace", place, "delete", "pod", name, "--wait", at_most(120))


def clean_up(cluster: Real, place: str) -> None:
    cluster.kubectl("delete", "namespace", place, "--wait", at_most(120))


def ip_of(cluster: Real, place: str, name: str) -> str:
    pod: Pod = get_pod(cluster, place, name)
    return pod.status.addresses[0] if pod.status.addresses else ""


def address_of(cluster: Real, place: str, name: str) -> str:
    """Once it has one."""
    return cluster.wait(
        lambda: ip_of(cluster, place, name), SECONDS, f"pod {place}/{name} to have an address"
    )


def events_of(cluster: Real, place: str, name: str) -> str:
    return "".join(messages(cluster.client, place, name=name).values())


def release(cluster: Real, address: str) -> None:
    """As docs/how-to/release-an-address.md says."""
    [segment] = [
        each["metadata"]["name"]
        for each in cluster.client.list(GROUPS["v1"]).items
        if f"{address}/32" in each["spec"].get("reservedCIDRs", ())
    ]
    cluster.client.patch(GROUPS["v1"], segment, {"metadata": {"annotations": {RELEASE: address}}})
