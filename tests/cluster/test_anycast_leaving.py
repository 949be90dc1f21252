"""An address goes when its node has gone, and only then: on a real control plane, in an emulated cloud.

It takes its seconds: the last test of this file waits for all that the others have left to go.
"""

from __future__ import annotations

import json

import pytest

from api.anycast_ip import ADDRESS_ID
from dev.lab.session import Lab
from kube.resources import CONFIG_MAPS
from tests.cluster import anycast
from tests.cluster.anycast import DRAWBRIDGE, Fleet

ALLOW_LIST = "anycast-ips"
NO_ORDERS = "UnauthorizedOperation.AnycastEip"


@pytest.mark.promise
def test_the_next_node_gets_the_address_of_the_one_that_left_without_an_order(
    cloud_lab: Lab, fleet: Fleet
) -> None:
    anycast.assert_empty_soon(cloud_lab, lambda: anycast.left_behind(cloud_lab))
    retain, allow_list = {"enabled": True, "count": 3}, {"enabled": True, "configMap": ALLOW_LIST}
    with anycast.configured(cloud_lab, pool={"retain": retain}, allowList=allow_list):
        fleet.join("a")
        fleet.await_open("a")
        (address,) = fleet.on("a")
        fleet.wait(lambda: allowed(fleet).get(address["ip"]) == "in use", "the address to be published")
        fleet.leave("a")
        fleet.wait(lambda: allowed(fleet).get(address["ip"]) == "idle", "the address to be idle")
        with fleet.cloud.turned(errors={"AllocateAddresses": NO_ORDERS}):
            fleet.join("b")
            fleet.await_open("b")

        assert [each["id"] for each in fleet.on("b")] == [address["id"]]
        assert fleet.node("b").metadata.annotations[ADDRESS_ID] == address["id"]
        fleet.await_event("b", "AnycastIpTaken")
        fleet.leave("b")
        fleet.wait(lambda: allowed(fleet).get(address["ip"]) == "idle", "the address to be idle again")
    fleet.wait(lambda: fleet.addresses() == [], "the address to be released without a pool")
    cloud_lab.client.delete(CONFIG_MAPS, ALLOW_LIST, DRAWBRIDGE)


def allowed(fleet: Fleet) -> dict[str, str]:
    """The states of the published addresses."""
    found = (fleet.client.find(CONFIG_MAPS, ALLOW_LIST, DRAWBRIDGE) or {}).get("data")
    if found is None:
        return {}
    states = {each["address"]: each["state"] for each in json.loads(found["addresses.json"])}
    assert found["addresses.txt"].split() == sorted(states)
    return states


@pytest.mark.promise
def test_in_the_end_nothing_is_left_of_all_these_nodes(cloud_lab: Lab) -> None:
    anycast.assert_empty_soon(cloud_lab, lambda: anycast.left_behind(cloud_lab))
