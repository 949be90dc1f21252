"""AIA-IP-Controller's users leave it by its page: no node is closed, loses its address or gets another."""

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
from dev.lab.watching import WatchLost, watching
from kube.types import Node
from tests.cluster import anycast
from tests.cluster.anycast import Fleet
from tests.cluster.migrations import NAMES, Migration

pytestmark = pytest.mark.nightly

UUID = "0b1c2d3e-0000-4000-8000-000000000001"
NAMES_OF_NODES = ("one", "two", "three")
UNSERVED = "unserved"
"""The control: a node without an address of the original."""


@pytest.fixture
def migration(tmp_path: Path) -> Iterator[Migration]:
    """Drawbridge is installed already, without the feature."""
    credential = {
        "clusterID": fixture.CLUSTER_ID,
        "secretID": fixture.SECRET_ID,
        "secretKey": fixture.SECRET_KEY,
    }
    # Tags and labels are left blank, as in its chart.
    config = {"region": {"longName": fixture.REGION}, "aia": {"tags": None}, "node": {"labels": None}}
    values = {"credential": credential, "config": config}
    with running(chart=False, calico=None, nodes=1, kwok_nodes=1, cloud={}) as up:
        moving = Migration(up, "aia-ip-controller", tmp_path)
        moving.install("aia-ip-controller", "kube-system", install.merged(NAMES["aia"], values))
        install.install_chart(up, {"ipReservation": {"enabled": False}, "anycastIP": {"enabled": False}})
        yield moving


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


def test_the_page_leads_from_aia_ip_controller_to_drawbridge(migration: Migration) -> None:
    lab = migration.lab
    fleet = Fleet(lab)
    before = {name: served_by_the_original(fleet, name) for name in NAMES_OF_NODES}
    fleet.join(UNSERVED)
    fleet.cloud.add_instance(fleet.instance_of(UNSERVED))

    with watching(lab.client, {NODES: Node}) as observations:
        for _ in ("copy the Secret", "save", "stop", "switch on"):
            migration.step()
        for name in NAMES_OF_NODES:
            fleet.wait(
                lambda: BOUND in fleet.node(name).metadata.annotations,  # noqa: B023
                f"the proof of node {fleet.name_of(name)}",
            )
        fleet.await_open(UNSERVED)
        seen = [observations.get_nowait() for _ in range(observations.qsize())]

    assert [each for each in seen if isinstance(each, WatchLost)] == []
    ours = {fleet.name_of(name) for name in (*NAMES_OF_NODES, UNSERVED)}
    states = [each.object for each in seen if not isinstance(each, WatchLost)]
    watched = [node for node in states if isinstance(node, Node) and node.metadata.name in ours]
    assert {node.metadata.name for node in watched if is_tainted(node)} == {fleet.name_of(UNSERVED)}
    assert {name: fleet.node(name).metadata.annotations[ADDRESS_ID] for name in NAMES_OF_NODES} == before
    [ordered] = fleet.on(UNSERVED)
    assert {each["id"] for each in fleet.addresses()} == {*before.values(), ordered["id"]}
    assert anycast.misfits(fleet) == []

    for _ in ("verify", "remove"):
        migration.step()
    migration.assert_left("ConfigMap aia-official-cluster-uuid")
    fleet.leave_all()
    fleet.assert_nothing_is_left_behind()
