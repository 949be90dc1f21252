"""The verbs: batches, pages, and what an answer means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.client import Cloud, everything
from cloud.types import ADDRESS_TYPES, Address, Order, Terms
from tests.cloud_server import FakeTransport, calls
from tests.fakes import FakeClock

Params = Mapping[str, Any]


def cloud(fake: FakeTransport) -> Cloud:
    return Cloud(calls(fake, FakeClock(), timeout=1000))


def row(id: str, **fields: object) -> dict[str, object]:  # noqa: A002
    return {"AddressId": id, "AddressStatus": "UNBIND", **fields}


def found(rows: list[dict[str, object]], params: Params) -> dict[str, object]:
    """As the cloud pages: not more than Limit of them."""
    some = rows[params["Offset"] :][: params["Limit"]]
    return {"AddressSet": some, "TotalCount": len(rows)}


def filters(params: Params) -> dict[str, list[str]]:
    return {each["Name"]: each["Values"] for each in params["Filters"]}


def test_any_number_of_ids_is_asked_for_a_hundred_at_a_time() -> None:
    fake = FakeTransport(
        DescribeAddresses=lambda params: found([row(each) for each in params["AddressIds"]], params)
    )
    ids = [f"eip-{number}" for number in range(250)]
    assert sorted(cloud(fake).addresses([*ids, "eip-1"])) == sorted(ids)
    assert [len(params["AddressIds"]) for _, params in fake.asked] == [100, 100, 50]


def test_to_ask_for_nothing_asks_nothing() -> None:
    fake = FakeTransport()
    ours = cloud(fake)
    assert (ours.addresses([]), ours.addresses_on([]), ours.instances([])) == ({}, [], {})
    ours.create_tags([])
    assert fake.asked == []


def read(**fields: object) -> Address:
    fake = FakeTransport(DescribeAddresses=lambda params: found([row("eip-1", **fields)], params))
    return cloud(fake).addresses(["eip-1"])["eip-1"]


def test_an_address_is_what_its_row_says() -> None:
    names = {"AddressStatus": "BIND", "AddressType": "AnycastEIP", "AddressName": "n", "AddressIp": "1.2.3.4"}
    there = {"InstanceId": "ins-1", "NetworkInterfaceId": "eni-1", "IsBlocked": True, "IsArrears": True}
    assert read(**names, **there, TagSet=[{"Key": "a", "Value": "b"}], SomethingNew={}) == Address(
        id="eip-1",
        status="BIND",
        type="AnycastEIP",
        ip="1.2.3.4",
        instance_id="ins-1",
        network_interface_id="eni-1",
        name="n",
        tags={"a": "b"},
        blocked=True,
        arrears=True,
    )


def test_nulls_and_another_spelling_of_a_type_are_understood() -> None:
    nulls = dict.fromkeys(("AddressIp", "InstanceId", "TagSet", "Bandwidth", "IsBlocked", "AddressName"))
    assert read(**nulls, AddressType="WanIp") == Address(id="eip-1", status="UNBIND", type="WanIP")


def test_addresses_on_instances_are_read_to_the_last_page_an_ordinary_public_address_too() -> None:
    rows = [row(f"eip-{number}") for number in range(130)]
    fake = FakeTransport(DescribeAddresses=lambda params: found(rows, params))
    assert len(cloud(fake).addresses_on([f"ins-{number}" for number in range(100)])) == 130
    assert [params["Offset"] for _, params in fake.asked] == [0, 100]
    asked = filters(fake.asked[0][1])
    assert len(asked["instance-id"]) == 100
    assert asked["address-type"] == list(ADDRESS_TYPES)
    assert "WanIP" in ADDRESS_TYPES


def test_an_order_asks_for_what_it_names_and_nothing_else() -> None:
    fake = FakeTransport(AllocateAddresses=lambda params: {"AddressSet": ["eip-1"], "TaskId": 7})
    ours = cloud(fake)
    assert ours.allocate(Order(token="t", type="EIP", name="n")) == "eip-1"
    ours.allocate(
        Order(
            token="t",
            type="AnycastEIP",
            name="n",
            tags={"b": "2", "a": "1"},
            terms=Terms(100, "TRAFFIC_POSTPAID_BY_HOUR", "bwp-1"),
            zone="ANYCAST_ZONE_OVERSEAS",
        )
    )
    plain = {"AddressCount": 1, "AddressType": "EIP", "AddressName": "n", "ClientToken": "t"}
    assert [params for _, params in fake.asked] == [
        plain,
        plain
        | {
            "AddressType": "AnycastEIP",
            "Tags": [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}],
            "InternetMaxBandwidthOut": 100,
            "InternetChargeType": "TRAFFIC_POSTPAID_BY_HOUR",
            "AnycastZone": "ANYCAST_ZONE_OVERSEAS",
            "BandwidthPackageId": "bwp-1",
        },
    ]


@pytest.mark.parametrize("token", ["", "x" * 65, "käse"])
def test_a_token_that_would_not_protect_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="token"):
        Order(token=token, type="EIP", name="n")


SIZE = 10


def address(number: int) -> Address:
    return Address(id=f"eip-{number}", status="UNBIND")


def pages(
    world: list[Address], between: Callable[[int], object] = lambda calls: None
) -> Callable[[int], tuple[list[Address], int]]:
    """Pages of *world*; *between* runs after each, with their number so far."""
    calls = 0

    def page(offset: int) -> tuple[list[Address], int]:
        nonlocal calls
        found = world[offset : offset + SIZE], len(world)
        calls += 1
        between(calls)
        return found

    return page


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 25, 30])
def test_every_row_is_read_also_those_of_the_last_page(count: int) -> None:
    world = [address(number) for number in range(count)]
    assert everything(pages(world)) == world


@given(removed=st.integers(0, 29), after=st.integers(1, 3))
def test_a_row_that_goes_in_between_hides_none_that_stays(removed: int, after: int) -> None:
    world = [address(number) for number in range(30)]
    stays = [row for row in world if row.id != f"eip-{removed}"]

    def remove(calls: int) -> None:
        if calls == after:
            del world[removed]

    assert {row.id for row in stays} <= {row.id for row in everything(pages(world, remove))}


def test_a_row_that_comes_in_between_is_not_listed_twice() -> None:
    world = [address(number) for number in range(30)]

    def add(calls: int) -> None:
        if calls == 1:
            world.insert(0, address(99))

    ids = [row.id for row in everything(pages(world, add))]
    assert len(ids) == len(set(ids)) == 31


def test_a_list_that_never_stands_still_ends_nevertheless() -> None:
    world = [address(number) for number in range(30)]
    assert len(everything(pages(world, lambda calls: world.pop()))) >= 15


def test_a_total_that_promises_too_much_ends_nevertheless() -> None:
    assert everything(lambda offset: ([], 100)) == []
