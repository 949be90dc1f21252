"""AIA-IP-Controller's users install Drawbridge over it: no node is closed, loses its address or gets another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.anycast_ip import ADDRESS_ID, BOUND, is_tainted
from controllers.anycast_ip.claim import CLUSTER_ID, CLUSTER_UUID, NODE_INSTANCE, NODE_NAME
from dev.lab import install
from dev.lab.bootstrap import running
from dev.lab.cloud import fixture
from dev.lab.nodes import NODES
from dev.lab.session import Lab
from dev.lab.watching import WatchLost, watching
from kube.types import Node
from tests.cluster import anycast
from tests.cluster.anycast import Fleet

pytestmark = pytest.mark.nightly

ORIGINAL = Path(__file__).parent.parent / "data" / "originals" / "aia-ip-controller.yaml"
UUID = "0b1c2d3e-0000-4000-8000-000000000001"
NAMES = ("one", "two", "three")
UNSERVED = "unserved"
"""The control: a node without an address of the original."""


@pytest.fixture
def lab() -> Iterator[Lab]:
    """With what the original leaves in a cluster, and without Drawbridge."""
    with running(chart=False, calico="projectcalico.org/v3", nodes=1, kwok_nodes=1, cloud={}) as up:
        up.kubectl("apply", "-f", str(ORIGINAL))
        yield up


def served_by_the_original(fleet: Fleet, name: str) -> str:
    """A node with its address, tags and annotations; the address."""
    node = fleet.join(name)
    fleet.cloud.add_instance(fleet.instance_of(name))
    tags = {
        CLUSTER_UUID: UUID,
        CLUSTER_ID: fixture.CLUSTER_ID,
        NODE_NAME: node.metadata.name,
        NODE_INSTANCE: fleet.instance_of(name),
    }
    bound = {"type": "AnycastEIP", "status": "BIND", "instance_id": fleet.instance_of(name), "tags": tags}
    address = fleet.cloud.add_address(name=f"{fixture.CLUSTER_ID}-aia", **bound)
    fleet.patch(name, metadata={"annotations": {ADDRESS_ID: address}})
    return address


def test_drawbridge_takes_over_from_aia_ip_controller(lab: Lab) -> None:
    fleet = Fleet(lab)
    before = {name: served_by_the_original(fleet, name) for name in NAMES}
    fleet.join(UNSERVED)
    fleet.cloud.add_instance(fleet.instance_of(UNSERVED))

    with watching(lab.client, {NODES: Node}) as observations:
        values = {"ipReservation": {"enabled": False}, "config": {"aia": {"bandwidth": 100}}}
        install.install_chart(lab, values)
        for name in NAMES:
            fleet.wait(
                lambda: BOUND in fleet.node(name).metadata.annotations,  # noqa: B023
                f"the proof of node {fleet.name_of(name)}",
            )
        fleet.await_open(UNSERVED)
        seen = [observations.get_nowait() for _ in range(observations.qsize())]

    assert [each for each in seen if isinstance(each, WatchLost)] == []
    ours = {fleet.name_of(name) for name in (*NAMES, UNSERVED)}
    states = [each.object for each in seen if not isinstance(each, WatchLost)]
    watched = [node for node in states if isinstance(node, Node) and node.metadata.name in ours]
    assert {node.metadata.name for node in watched if is_tainted(node)} == {fleet.name_of(UNSERVED)}
    assert {name: fleet.node(name).metadata.annotations[ADDRESS_ID] for name in NAMES} == before
    [ordered] = fleet.on(UNSERVED)
    assert {each["id"] for each in fleet.addresses()} == {*before.values(), ordered["id"]}
    assert anycast.misfits(fleet) == []

    lab.kubectl("-n", "kube-system", "delete", "deployment,secret", "aia-ip-controller", "--ignore-not-found")
    lab.kubectl("-n", "kube-system", "delete", "secret", "aia-ip-controller-credential")
    fleet.leave_all()
    fleet.assert_nothing_is_left_behind()
