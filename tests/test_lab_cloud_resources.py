"""The emulator, through the vendor's client: addresses, instances, orders, quotas and tags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dev.lab.cloud import Cloud, Knobs, serving
from tests.fakes import FakeClock
from tests.sdk import Sdk, sdk, without_proxies

INSTANCE = "ins-11112222"
OTHER = "ins-33334444"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_800_000_000.0)


@pytest.fixture
def cloud(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    without_proxies(monkeypatch)
    knobs = Knobs(rate_limits=False, quota_total=500, quota_daily=1000, tag_lag_seconds=0)
    with serving(knobs, clock=clock) as cloud:
        yield cloud


@pytest.fixture
def call(cloud: Cloud) -> Iterator[Sdk]:
    with sdk(cloud.endpoint) as call:
        yield call


class Hands:
    """What tests do again and again, each step waited for."""

    def __init__(self, call: Sdk, clock: FakeClock) -> None:
        self.call, self.clock = call, clock

    def allocated(self, **order: Any) -> str:
        address = self.call("AllocateAddresses", **order)["AddressSet"][0]
        self.clock.advance(10)
        return address

    def bound(self, instance: str = INSTANCE) -> str:
        address = self.allocated()
        self.call("AssociateAddress", AddressId=address, InstanceId=instance)
        self.clock.advance(10)
        return address

    def described(self, address: str) -> dict[str, Any]:
        return self.call("DescribeAddresses", AddressIds=[address])["AddressSet"][0]

    def status(self, address: str) -> str:
        return self.described(address)["AddressStatus"]

    def found(self, **filters: str) -> list[str]:
        wanted = [
            {"Name": name.replace("__", ":").replace("_", "-"), "Values": [value]}
            for name, value in filters.items()
        ]
        rows = self.call("DescribeAddresses", Filters=wanted)["AddressSet"]
        return [row["AddressId"] for row in rows]


@pytest.fixture
def hands(call: Sdk, clock: FakeClock) -> Hands:
    return Hands(call, clock)


def test_an_address_goes_through_all_states_each_in_its_time(
    call: Sdk, hands: Hands, clock: FakeClock, cloud: Cloud
) -> None:
    seen = []
    address = call("AllocateAddresses")["AddressSet"][0]
    steps = [
        ("AssociateAddress", {"AddressId": address, "InstanceId": INSTANCE}),
        ("DisassociateAddress", {"AddressId": address}),
        ("ReleaseAddresses", {"AddressIds": [address]}),
    ]
    for action, params in steps:
        seen.append(hands.status(address))
        clock.advance(2)
        seen.append(hands.status(address))
        call(action, **params)
    seen.append(hands.status(address))
    clock.advance(1)

    assert seen == ["CREATING", "UNBIND", "BINDING", "BIND", "UNBINDING", "UNBIND", "OFFLINING"]
    assert call("DescribeAddresses", AddressIds=[address])["AddressSet"] == []
    assert cloud.world.addresses == {}


def test_a_page_is_20_rows_also_for_ids_and_never_more_than_100(call: Sdk, hands: Hands) -> None:
    ids = call("AllocateAddresses", AddressCount=120)["AddressSet"]
    given = call("DescribeAddresses", AddressIds=ids)

    assert (len(given["AddressSet"]), given["TotalCount"]) == (20, 120)
    pages = [call("DescribeAddresses", Limit=100, Offset=offset)["AddressSet"] for offset in (0, 100, 200)]
    assert [len(page) for page in pages] == [100, 20, 0]
    assert {row["AddressId"] for page in pages for row in page} == set(ids)
    assert call.refused("DescribeAddresses", Limit=101) == "InvalidParameterValue.Range"
    assert call.refused("DescribeAddresses", Offset=-1) == "InvalidParameterValue.Range"


def test_filters_are_joined_by_and_their_values_by_or(call: Sdk, hands: Hands) -> None:
    bound, other, free = hands.bound(), hands.bound(OTHER), hands.allocated(AddressName="spare")

    assert hands.found(address_name="spare") == [free]
    assert hands.found(address_type="EIP", instance_id=OTHER) == [other]
    both = call(
        "DescribeAddresses", Filters=[{"Name": "instance-id", "Values": [INSTANCE, OTHER, "ins-55556666"]}]
    )
    assert [row["AddressId"] for row in both["AddressSet"]] == [bound, other]
    named = call("DescribeAddresses", Filters=[{"Name": "address-name", "Values": ["other", "spare"]}])
    assert named["AddressSet"] == []  # only the first value counts


def quotas(call: Sdk) -> dict[str, tuple[int, int]]:
    rows = call("DescribeAddressQuota")["QuotaSet"]
    return {row["QuotaId"]: (row["QuotaCurrent"], row["QuotaLimit"]) for row in rows}


@pytest.mark.parametrize(
    ("order", "knobs", "code"),
    [
        pytest.param({"AddressType": "Pink"}, {}, "InvalidParameterValue", id="no such type"),
        pytest.param({"AnycastZone": "MARS"}, {}, "InvalidParameterValue", id="no such zone"),
        pytest.param({"AddressCount": 0}, {}, "InvalidParameterValue.Range", id="none at all"),
        pytest.param(
            {"AddressType": "AnycastEIP"},
            {"anycast_allowed": False},
            "UnauthorizedOperation.AnycastEip",
            id="not allowed anycast",
        ),
        pytest.param(
            {"InternetMaxBandwidthOut": 101}, {}, "InvalidParameterValue.BandwidthOutOfRange", id="too wide"
        ),
        pytest.param(
            {"InternetChargeType": "BANDWIDTH_PREPAID_BY_MONTH"},
            {},
            "UnsupportedOperation.OfflineChargeType",
            id="prepaid",
        ),
        pytest.param(
            {"Tags": [{"Key": "a", "Value": "b"}]},
            {},
            "InvalidParameterValue.TagNotExisted",
            id="unknown tag",
        ),
    ],
)
def test_an_order_that_cannot_be_met_allocates_nothing(
    call: Sdk, cloud: Cloud, order: dict[str, Any], knobs: dict[str, Any], code: str
) -> None:
    for name, value in knobs.items():
        setattr(cloud.knobs, name, value)

    assert call.refused("AllocateAddresses", **order) == code
    assert cloud.world.addresses == {}
    assert quotas(call)["DAILY_EIP_APPLY"][0] == 0


PAIR = {"Tags": [{"TagKey": "node", "TagValue": "n-1"}]}


def test_a_tag_on_an_address_is_not_deleted_before_the_address_is_gone(
    call: Sdk, clock: FakeClock, cloud: Cloud
) -> None:
    call("CreateTags", **PAIR)
    address = call("AllocateAddresses", Tags=[{"Key": "node", "Value": "n-1"}])["AddressSet"][0]
    clock.advance(1)
    assert call.refused("DeleteTags", **PAIR) == "FailedOperation.TagAttachedResource"
    call("ReleaseAddresses", AddressIds=[address])
    assert call.refused("DeleteTags", **PAIR) == "FailedOperation.TagAttachedResource"
    clock.advance(1)
    call("DeleteTags", **PAIR)
    assert cloud.world.tags == set()
