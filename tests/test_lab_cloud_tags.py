"""The emulated cloud's tags: made before use, found by an index that may be behind, deleted when unused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lab.cloud import Cloud, Knobs, serving
from tests.sdk import HandClock, Sdk, sdk, without_proxies

PAIR = {"TagKey": "node", "TagValue": "n-1"}


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def cloud(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    without_proxies(monkeypatch)
    knobs = Knobs(rate_limits=False, quota_total=500, quota_daily=1000, tag_lag_seconds=0)
    with serving(knobs, clock=clock) as cloud:
        yield cloud


@pytest.fixture
def call(cloud: Cloud) -> Iterator[Sdk]:
    with sdk(cloud.endpoint) as call:
        yield call


def tagged(call: Sdk, value: str = "n-1", key: str = "node") -> str:
    """An address with this tag, which is made if need be."""
    if not call("DescribeTags", TagKey=key, TagValue=value)["TotalCount"]:
        call("CreateTag", TagKey=key, TagValue=value)
    return call("AllocateAddresses", Tags=[{"Key": key, "Value": value}])["AddressSet"][0]


def test_an_order_makes_its_tags_when_the_knob_says_so(call: Sdk, cloud: Cloud) -> None:
    cloud.knobs.allocation_creates_tags = True
    call("AllocateAddresses", Tags=[{"Key": "node", "Value": "n-1"}])

    assert cloud.world.tags == {("node", "n-1")}


def test_a_new_tag_is_known_to_orders_after_its_time(call: Sdk, cloud: Cloud, clock: HandClock) -> None:
    cloud.knobs.new_tag_seconds = 3
    order = {"Tags": [{"Key": "node", "Value": "n-1"}]}
    call("CreateTag", **PAIR)

    assert call.refused("AllocateAddresses", **order) == "InvalidParameterValue.TagNotExisted"
    clock.pass_(3)
    call("AllocateAddresses", **order)


def test_a_tag_on_an_address_is_not_deleted_before_the_address_is_gone(
    call: Sdk, clock: HandClock, cloud: Cloud
) -> None:
    address = tagged(call)
    clock.pass_(1)
    assert call.refused("DeleteTag", **PAIR) == "FailedOperation.TagAttachedResource"
    call("ReleaseAddresses", AddressIds=[address])
    assert call.refused("DeleteTag", **PAIR) == "FailedOperation.TagAttachedResource"
    clock.pass_(1)

    call("DeleteTag", **PAIR)
    assert cloud.world.tags == set()


def test_a_tag_is_in_use_for_as_long_as_the_index_thinks_so(
    call: Sdk, clock: HandClock, cloud: Cloud
) -> None:
    cloud.knobs.tag_lag_seconds = 5
    address = tagged(call)
    clock.pass_(6)
    call("ReleaseAddresses", AddressIds=[address])
    clock.pass_(2)

    assert call.refused("DeleteTag", **PAIR) == "FailedOperation.TagAttachedResource"
    clock.pass_(5)
    call("DeleteTag", **PAIR)


@pytest.mark.parametrize(("atomic", "made"), [(True, 1), (False, 3)])
def test_one_bad_tag_spoils_a_batch_or_is_left_out_by_the_knob(
    call: Sdk, cloud: Cloud, atomic: bool, made: int
) -> None:
    cloud.knobs.tag_batches_atomic = atomic
    call("CreateTag", **PAIR)
    batch = [{"TagKey": "node", "TagValue": f"n-{number}"} for number in range(3)]

    assert call.refused("CreateTags", Tags=batch) == "ResourceInUse.TagDuplicate"
    assert len(cloud.world.tags) == made
    missing = [*batch, {"TagKey": "node", "TagValue": "nowhere"}]
    assert call.refused("DeleteTags", Tags=missing) == "ResourceNotFound.TagNonExist"
    assert len(cloud.world.tags) == (made if atomic else 0)


def test_the_index_of_tags_is_behind_by_its_lag(call: Sdk, cloud: Cloud, clock: HandClock) -> None:
    cloud.knobs.tag_lag_seconds = 30
    tagged(call)
    clock.pass_(29)
    by_tag = [{"Name": "tag:node", "Values": ["n-1"]}]

    assert call("DescribeAddresses", Filters=by_tag)["AddressSet"] == []
    clock.pass_(1)
    assert len(call("DescribeAddresses", Filters=by_tag)["AddressSet"]) == 1


@pytest.mark.parametrize(
    ("filter_", "found"),
    [
        pytest.param({"Name": "tag:node", "Values": ["n-1"]}, True, id="pair"),
        pytest.param({"Name": "tag:node", "Values": ["n-2"]}, False, id="another value"),
        pytest.param({"Name": "tag-key", "Values": ["node"]}, True, id="key"),
        pytest.param({"Name": "tag-value", "Values": ["n-1"]}, True, id="value"),
        pytest.param({"Name": "tag:team", "Values": ["n-1"]}, False, id="another key"),
    ],
)
def test_addresses_are_described_by_their_tags(call: Sdk, filter_: dict[str, Any], found: bool) -> None:
    tagged(call)

    assert bool(call("DescribeAddresses", Filters=[filter_])["AddressSet"]) == found
