"""An address goes when its node has gone, and only then: on a real control plane, in an emulated cloud.

It takes its seconds: the last test of this file waits for all that the others have left to go.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from controllers.anycast_ip.claim import FIELD, SELECTED
from kube.errors import NotFound
from kube.resources import CONFIG_MAPS
from lab.session import Lab
from settings.anycast_ip import NEED_LABEL
from tests.cluster import anycast, workloads
from tests.cluster.anycast import DRAWBRIDGE, Fleet
from tests.cluster.scenes import Scene, playing, title
from webhook.anycast_ip import ADDRESS_ID

ALLOW_LIST = "anycast-ips"
NO_ORDERS = "UnauthorizedOperation.AnycastEip"
NOT_NOW = "UnsupportedOperation.InstanceStatusNotPermit"


def an_address_goes_whatever_it_was_at_when_its_node_went(fleet: Fleet) -> None:
    """Each state lasts long enough to be met; a node that is deleted later proves less, but nothing wrong."""
    for name in ("atonce", "creating", "binding", "bound", "unlabelled", "leaving", "offlining"):
        fleet.join(name)
    fleet.leave("atonce")
    fleet.await_status("creating", "CREATING", "UNBIND", "BINDING", "BIND")
    fleet.leave("creating")
    fleet.await_status("binding", "BINDING", "BIND")
    fleet.leave("binding")
    fleet.await_open("bound", "unlabelled", "leaving", "offlining")
    fleet.patch("unlabelled", metadata={"labels": {NEED_LABEL: None}})
    fleet.leave("bound", "unlabelled")
    move(fleet, "leaving", "offlining")
    for name, former in (("leaving", "UNBINDING"), ("offlining", "OFFLINING")):
        fleet.wait(lambda: gone_as_far_as(fleet, name, former), f"an address to be {former}")  # noqa: B023
        fleet.leave(name)


def move(fleet: Fleet, *names: str) -> None:
    """The nodes come again under their names, on other instances."""
    fleet.leave(*names)
    for name in names:
        fleet.join(name, instance=fleet.instance_of(f"{name}2"))


def gone_as_far_as(fleet: Fleet, name: str, status: str) -> bool:
    way = ("BIND", "UNBINDING", "UNBIND", "OFFLINING")
    return all(way.index(each["status"]) >= way.index(status) for each in fleet.ordered_for(name))


SCENES: tuple[Scene, ...] = (an_address_goes_whatever_it_was_at_when_its_node_went,)


@pytest.fixture(scope="module")
def played(cloud_lab: Lab) -> Iterator[Callable[[Scene], None]]:
    slowly = {f"{step}_seconds": 1 for step in ("allocate", "bind", "unbind", "release")}
    with cloud_lab.cloud.turned(**slowly), playing(cloud_lab, SCENES) as end_of:
        yield end_of


@pytest.mark.promise
@pytest.mark.parametrize("scene", SCENES, ids=title)
def test_in_the_lab(played: Callable[[Scene], None], scene: Scene) -> None:
    played(scene)


def test_nodes_may_go_while_no_controller_runs(cloud_lab: Lab, fleet: Fleet) -> None:
    fleet.join("bound")
    fleet.await_open("bound")
    with cloud_lab.cloud.turned(bind_seconds=2):
        fleet.join("midway")
        fleet.await_status("midway", "CREATING", "UNBIND", "BINDING", "BIND")
        scale_controllers(cloud_lab, 0)
        try:
            fleet.leave("bound", "midway")
            assert fleet.addresses()
        finally:
            scale_controllers(cloud_lab, 1)


def scale_controllers(lab: Lab, replicas: int) -> None:
    """Back when they are gone, or begin to come."""
    lab.kubectl("scale", f"deployment/{DRAWBRIDGE}-controllers", "-n", DRAWBRIDGE, f"--replicas={replicas}")
    selector = "app.kubernetes.io/component=controllers"

    def count() -> int:
        return len(lab.client.list(workloads.PODS, DRAWBRIDGE, label_selector=selector).items)

    lab.wait(lambda: count() == replicas, anycast.SECONDS, f"{replicas} pods of the controllers")


def test_a_node_that_comes_again_on_its_instance_keeps_its_address(fleet: Fleet) -> None:
    fleet.join("a")
    fleet.await_open("a")
    address = fleet.node("a").metadata.annotations[ADDRESS_ID]

    with fleet.cloud.turned(errors={"DisassociateAddress": NOT_NOW}):  # however long it takes to come again
        fleet.leave("a")
        fleet.join("a")
        fleet.await_open("a")

    assert fleet.node("a").metadata.annotations[ADDRESS_ID] == address


@pytest.mark.promise
def test_the_next_node_gets_the_address_of_the_one_that_left_without_an_order(
    cloud_lab: Lab, fleet: Fleet
) -> None:
    anycast.assert_empty_soon(cloud_lab, lambda: anycast.left_behind(cloud_lab))
    with anycast.configured(cloud_lab, pool={"retain": {"count": 3}}, allowList={"configMap": ALLOW_LIST}):
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


@pytest.mark.promise
def test_an_address_that_its_user_lends_serves_a_node_without_an_order_and_stays(
    cloud_lab: Lab, fleet: Fleet
) -> None:
    loan = {"lent-by": fleet.token}
    pool, allow_list = {"adopt": loan, "prefer": "zone"}, {"configMap": ALLOW_LIST}
    address = fleet.cloud.add_address(type="AnycastEIP", tags=loan)
    with anycast.configured(cloud_lab, pool=pool, allowList=allow_list, resyncPeriod="1s"):
        fleet.wait(lambda: "idle" in allowed(fleet).values(), "the address to be adopted")
        with fleet.cloud.turned(errors={"AllocateAddresses": NO_ORDERS}):
            fleet.join("a")
            fleet.await_open("a")
        assert [each["id"] for each in fleet.on("a")] == [address]
        fleet.leave("a")
        fleet.wait(lambda: "idle" in allowed(fleet).values(), "the address to be idle again")
    fleet.wait(lambda: not claims_to(cloud_lab, address), "the address to be returned")
    assert [(each["id"], each["status"]) for each in fleet.addresses()] == [(address, "UNBIND")]
    cloud_lab.client.delete(CONFIG_MAPS, ALLOW_LIST, DRAWBRIDGE)


def claims_to(lab: Lab, address: str) -> list[str]:
    found = lab.client.list(CONFIG_MAPS, DRAWBRIDGE, label_selector=SELECTED).items
    return [each["metadata"]["name"] for each in found if address in each["data"][FIELD]]


def allowed(fleet: Fleet) -> dict[str, str]:
    """The states of the published addresses."""
    try:
        found = fleet.client.get(CONFIG_MAPS, ALLOW_LIST, DRAWBRIDGE)["data"]
    except NotFound:
        return {}
    states = {each["address"]: each["state"] for each in json.loads(found["addresses.json"])}
    assert found["addresses.txt"].split() == sorted(states)
    return states


@pytest.mark.promise
def test_in_the_end_nothing_is_left_of_all_these_nodes(cloud_lab: Lab) -> None:
    anycast.assert_empty_soon(cloud_lab, lambda: anycast.left_behind(cloud_lab))
