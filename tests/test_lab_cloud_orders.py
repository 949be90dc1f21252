"""What may be ordered, how much of it, and what a ClientToken does when an order comes again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lab.cloud import Cloud, Knobs, serving
from tests.sdk import HandClock, Sdk, sdk, without_proxies


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def cloud(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    without_proxies(monkeypatch)
    with serving(Knobs(rate_limits=False), clock=clock) as cloud:
        yield cloud


@pytest.fixture
def call(cloud: Cloud) -> Iterator[Sdk]:
    with sdk(cloud.endpoint) as call:
        yield call


def quotas(call: Sdk) -> dict[str, tuple[int, int]]:
    rows = call("DescribeAddressQuota")["QuotaSet"]
    return {row["QuotaId"]: (row["QuotaCurrent"], row["QuotaLimit"]) for row in rows}


def test_a_token_that_comes_again_gives_the_same_address_and_no_second_one(call: Sdk, cloud: Cloud) -> None:
    first = call("AllocateAddresses", ClientToken="a", AddressName="n")
    again = call("AllocateAddresses", ClientToken="a", AddressName="n")

    assert (again["AddressSet"], again["TaskId"]) == (first["AddressSet"], first["TaskId"])
    assert again["RequestId"] != first["RequestId"]
    assert list(cloud.world.addresses) == first["AddressSet"]


def test_the_total_quota_is_of_existing_addresses(call: Sdk, cloud: Cloud, clock: HandClock) -> None:
    cloud.knobs.quota_total = 2
    ids = call("AllocateAddresses", AddressCount=2)["AddressSet"]

    assert call.refused("AllocateAddresses") == "AddressQuotaLimitExceeded"
    assert quotas(call)["TOTAL_EIP_QUOTA"] == (2, 2)
    clock.pass_(1)
    call("ReleaseAddresses", AddressIds=ids[:1])
    clock.pass_(1)
    call("AllocateAddresses")
    with sdk(cloud.endpoint, region="ap-tokyo") as elsewhere:
        elsewhere("AllocateAddresses")


def test_the_daily_quota_is_of_what_was_applied_for_until_midnight(
    call: Sdk, cloud: Cloud, clock: HandClock
) -> None:
    cloud.knobs.quota_daily = 1
    (address,) = call("AllocateAddresses")["AddressSet"]
    clock.pass_(1)
    call("ReleaseAddresses", AddressIds=[address])
    clock.pass_(1)

    assert call.refused("AllocateAddresses") == "AddressQuotaLimitExceeded.DailyAllocate"
    assert quotas(call)["DAILY_EIP_APPLY"] == (1, 1)
    clock.pass_(86400)
    call("AllocateAddresses")


def test_the_documented_quotas_are_20_and_twice_as_many_a_day(call: Sdk) -> None:
    table = quotas(call)

    assert (table["TOTAL_EIP_QUOTA"], table["DAILY_EIP_APPLY"]) == ((0, 20), (0, 40))


@pytest.mark.parametrize("counts", [True, False])
def test_anycast_addresses_count_in_the_quota_by_the_knob(call: Sdk, cloud: Cloud, counts: bool) -> None:
    cloud.knobs.quota_total, cloud.knobs.quota_daily, cloud.knobs.anycast_in_quota = 1, 9, counts
    call("AllocateAddresses", AddressType="AnycastEIP")

    if counts:
        assert call.refused("AllocateAddresses", AddressType="AnycastEIP") == "AddressQuotaLimitExceeded"
    else:
        call("AllocateAddresses", AddressType="AnycastEIP")
    assert quotas(call)["TOTAL_EIP_QUOTA"] == (int(counts), 1)


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
            {"InternetMaxBandwidthOut": 1},
            {"account_type": "LEGACY"},
            "UnsupportedOperation.UnsupportedLegacyAccount",
            id="bandwidth of a legacy account",
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
