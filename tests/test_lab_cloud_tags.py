"""The emulated cloud's tags: made before use, found by an index that may be behind, deleted when unused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lab.cloud import Cloud, Knobs, serving
from tests.sdk import REGION, HandClock, Sdk, sdk, without_proxies

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


def rows(call: Sdk, *values: str, key: str = "node", **more: Any) -> list[dict[str, Any]]:
    """What the tag index finds of the service vpc."""
    wanted = [{"TagKey": key, "TagValue": list(values)}]
    return call("DescribeResourcesByTags", TagFilters=wanted, ServiceType="vpc", **more)["Rows"]


def name(address: str) -> str:
    return f"qcs::vpc:{REGION}:uin/:eip/{address}"


def test_a_tag_must_exist_before_an_address_is_ordered_with_it(call: Sdk, cloud: Cloud) -> None:
    order = {"Tags": [{"Key": "node", "Value": "n-1"}]}

    assert call.refused("AllocateAddresses", **order) == "InvalidParameterValue.TagNotExisted"
    call("CreateTag", **PAIR)
    call("AllocateAddresses", **order)
    assert cloud.world.tags == {("node", "n-1")}


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


def test_a_tag_is_made_once_and_deleted_once(call: Sdk) -> None:
    call("CreateTag", **PAIR)

    assert call.refused("CreateTag", **PAIR) == "ResourceInUse.TagDuplicate"
    call("DeleteTag", **PAIR)
    assert call.refused("DeleteTag", **PAIR) == "ResourceNotFound.TagNonExist"


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


def test_a_batch_has_ten_tags_at_most(call: Sdk, cloud: Cloud) -> None:
    batch = [{"TagKey": "node", "TagValue": f"n-{number}"} for number in range(11)]

    assert call.refused("CreateTags", Tags=batch) == "LimitExceeded.TagNumPerRequest"
    call("CreateTags", Tags=batch[:10])
    assert len(cloud.world.tags) == 10
    call("DeleteTags", Tags=batch[:10])
    assert cloud.world.tags == set()


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        pytest.param("", "v", "InvalidParameterValue.TagKeyEmpty", id="no key"),
        pytest.param("k", "", "InvalidParameterValue.TagValueEmpty", id="no value"),
        pytest.param("k" * 128, "v", "InvalidParameterValue.TagKeyLengthExceeded", id="long key"),
        pytest.param("k", "v" * 256, "InvalidParameterValue.TagValueLengthExceeded", id="long value"),
        pytest.param("k!", "v", "InvalidParameterValue.TagKeyCharacterIllegal", id="bad key"),
        pytest.param("k", "v?", "InvalidParameterValue.TagValueCharacterIllegal", id="bad value"),
        pytest.param("qcs:k", "v", "InvalidParameterValue.ReservedTagKey", id="reserved key"),
    ],
)
def test_a_tag_is_spelled_as_documented(call: Sdk, key: str, value: str, code: str) -> None:
    assert call.refused("CreateTag", TagKey=key, TagValue=value) == code


def test_keys_and_the_values_of_a_key_are_limited(call: Sdk, cloud: Cloud) -> None:
    cloud.knobs.tag_keys, cloud.knobs.tag_values = 1, 2
    call("CreateTag", TagKey="k", TagValue="1")
    call("CreateTag", TagKey="k", TagValue="2")

    assert call.refused("CreateTag", TagKey="k", TagValue="3") == "LimitExceeded.TagValue"
    assert call.refused("CreateTag", TagKey="other", TagValue="1") == "LimitExceeded.TagKey"
    call("DeleteTag", TagKey="k", TagValue="1")
    call("CreateTag", TagKey="k", TagValue="3")


def test_addresses_are_found_by_tags_all_filters_any_value(call: Sdk) -> None:
    first, second = tagged(call, "n-1"), tagged(call, "n-2")

    assert [row["ResourceId"] for row in rows(call, "n-1")] == [first]
    assert [row["ResourceId"] for row in rows(call, "n-1", "n-2")] == [first, second]
    assert [row["ResourceId"] for row in rows(call)] == [first, second]
    assert rows(call, "n-1", ResourceRegion="ap-tokyo") == []
    none = call(
        "DescribeResourcesByTags",
        TagFilters=[{"TagKey": "node", "TagValue": ["n-1"]}, {"TagKey": "team", "TagValue": ["x"]}],
    )
    assert none["TotalCount"] == 0


@pytest.mark.parametrize(("twice", "services"), [(True, ["vpc", "cvm"]), (False, ["vpc"])])
def test_an_address_is_listed_under_two_services_by_the_knob(
    call: Sdk, cloud: Cloud, twice: bool, services: list[str]
) -> None:
    cloud.knobs.duplicate_tag_rows = twice
    tagged(call)
    found = call("DescribeResourcesByTags", TagFilters=[{"TagKey": "node", "TagValue": ["n-1"]}])

    assert [row["ServiceType"] for row in found["Rows"]] == services


def test_the_index_of_tags_is_behind_by_its_lag(call: Sdk, cloud: Cloud, clock: HandClock) -> None:
    cloud.knobs.tag_lag_seconds = 30
    address = tagged(call)
    clock.pass_(29)
    by_tag = [{"Name": "tag:node", "Values": ["n-1"]}]

    assert rows(call, "n-1") == []
    assert call("DescribeAddresses", Filters=by_tag)["AddressSet"] == []
    clock.pass_(1)
    assert len(rows(call, "n-1")) == 1
    assert len(call("DescribeAddresses", Filters=by_tag)["AddressSet"]) == 1

    call("ReleaseAddresses", AddressIds=[address])
    clock.pass_(2)
    assert len(rows(call, "n-1")) == 1  # gone, and found all the same
    assert call("DescribeAddresses", Filters=by_tag)["AddressSet"] == []
    clock.pass_(30)
    assert rows(call, "n-1") == []


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


def test_rows_come_in_pages_of_15_whose_offset_is_a_multiple_of_the_limit(call: Sdk, cloud: Cloud) -> None:
    call("CreateTag", **PAIR)
    call("AllocateAddresses", AddressCount=20, Tags=[{"Key": "node", "Value": "n-1"}])

    assert [len(rows(call, "n-1", Offset=offset)) for offset in (0, 15, 30)] == [15, 5, 0]
    wanted = [{"TagKey": "node", "TagValue": ["n-1"]}]
    code = call.refused("DescribeResourcesByTags", TagFilters=wanted, Offset=10)
    assert code == "InvalidParameterValue.OffsetInvalid"


def test_resources_are_paged_by_a_token(call: Sdk) -> None:
    call("CreateTag", **PAIR)
    ids = call("AllocateAddresses", AddressCount=5, Tags=[{"Key": "node", "Value": "n-1"}])["AddressSet"]
    seen, token = [], ""
    for _ in range(3):
        page = call(
            "GetResources",
            TagFilters=[{"TagKey": "node", "TagValue": ["n-1"]}],
            MaxResults=2,
            PaginationToken=token,
        )
        seen += [each["Resource"] for each in page["ResourceTagMappingList"]]
        token = page["PaginationToken"]

    assert token == ""
    assert sorted(seen) == sorted(map(name, ids))
    (one,) = call("GetResources", ResourceList=[name(ids[0])])["ResourceTagMappingList"]
    assert one["Tags"][0]["TagValue"] == "n-1"


def test_the_tags_of_addresses_are_found_by_keys_and_by_ids(call: Sdk) -> None:
    address = tagged(call)
    of = {"ServiceType": "vpc", "ResourcePrefix": "eip", "ResourceRegion": REGION, "ResourceIds": [address]}

    (row,) = call("DescribeResourceTagsByTagKeys", TagKeys=["node"], **of)["Rows"]
    assert (row["ResourceId"], row["TagKeyValues"][0]["TagValue"]) == (address, "n-1")
    assert call("DescribeResourceTagsByTagKeys", TagKeys=["team"], **of)["Rows"] == []
    (tag,) = call("DescribeResourceTagsByResourceIds", **of)["Tags"]
    assert (tag["ResourceId"], tag["TagKey"], tag["TagValue"]) == (address, "node", "n-1")
    many = {**of, "ResourceIds": [address] * 21}
    assert call.refused("DescribeResourceTagsByTagKeys", TagKeys=["node"], **many) == "InvalidParameter"


def test_tagging_makes_the_tag_replaces_a_value_and_tells_of_failures_beside_success(
    call: Sdk, cloud: Cloud
) -> None:
    address = tagged(call)
    given = call(
        "TagResources",
        ResourceList=[name(address), name("eip-zzzzzzzz"), "nonsense"],
        Tags=[{"TagKey": "node", "TagValue": "n-9"}, {"TagKey": "team", "TagValue": "edge"}],
    )

    assert [each["Code"] for each in given["FailedResources"]] == [
        "InvalidParameterValue.ResourceIdInvalid",
        "InvalidParameterValue.ResourceDescriptionError",
    ]
    assert cloud.world.addresses[address].tags == {"node": "n-9", "team": "edge"}
    assert ("team", "edge") in cloud.world.tags
    call("UnTagResources", ResourceList=[name(address)], TagKeys=["team"])
    assert cloud.world.addresses[address].tags == {"node": "n-9"}


def test_the_tags_of_one_address_are_replaced_and_taken_off(call: Sdk, cloud: Cloud) -> None:
    address = tagged(call)
    call(
        "ModifyResourceTags",
        Resource=name(address),
        ReplaceTags=[{"TagKey": "team", "TagValue": "edge"}],
        DeleteTags=[{"TagKey": "node"}],
    )

    assert cloud.world.addresses[address].tags == {"team": "edge"}
    assert call.refused("ModifyResourceTags", Resource=name(address)) == "MissingParameter"


def test_tags_are_listed_with_whether_they_can_be_deleted(call: Sdk) -> None:
    tagged(call)
    call("CreateTag", TagKey="node", TagValue="n-2")
    listed = call("DescribeTags", TagKeys=["node"])["Tags"]

    assert [(tag["TagValue"], tag["CanDelete"]) for tag in listed] == [("n-1", 0), ("n-2", 1)]
    assert call("DescribeTags", TagKey="node", TagValue="n-2")["TotalCount"] == 1
    assert call("DescribeTags", Limit=1, Offset=1)["Tags"][0]["TagValue"] == "n-2"
