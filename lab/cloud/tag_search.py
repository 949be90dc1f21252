"""Resources found by their tags and tags by their resources, as far as the index of tags has come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lab.cloud.action import Action
from lab.cloud.describe import as_of_tags
from lab.cloud.envelope import Fault
from lab.cloud.paging import aligned
from lab.cloud.request import Params
from lab.cloud.resources import name_of, region_and_id
from lab.cloud.values import WAN_IP, Address
from lab.cloud.world import World

GROUPS, VALUES = 6, 10
MOST = 400


class TagFilter(Params, frozen=True):
    tag_key: str
    tag_value: list[str] = []


class DescribeResourcesByTags(Params, frozen=True):
    tag_filters: list[TagFilter]
    service_type: str | None = None
    resource_prefix: str | None = None
    resource_region: str | None = None
    resource_id: str | None = None
    create_uin: int | None = None
    offset: int = 0
    limit: int = 15


class DescribeResourceTagsByTagKeys(Params, frozen=True):
    service_type: str
    resource_prefix: str
    resource_region: str
    resource_ids: list[str]
    tag_keys: list[str]
    offset: int = 0
    limit: int = 400


class DescribeResourceTagsByResourceIds(Params, frozen=True):
    service_type: str
    resource_prefix: str
    resource_ids: list[str]
    resource_region: str
    offset: int = 0
    limit: int = 15
    category: str = "All"


class GetResources(Params, frozen=True):
    resource_list: list[str] | None = None
    tag_filters: list[TagFilter] | None = None
    pagination_token: str = ""
    max_results: int = 50


def by_tags(world: World, params: DescribeResourcesByTags, _: str) -> dict[str, Any]:
    _check_filters(params.tag_filters)
    wanted = {
        "ServiceType": params.service_type,
        "ResourcePrefix": params.resource_prefix,
        "ResourceRegion": params.resource_region,
        "ResourceId": params.resource_id,
    }
    rows = [
        each
        for each in _rows(world, params.tag_filters)
        if all(value in (None, "", each[name]) for name, value in wanted.items())
    ]
    return _paged(params, rows, "Rows")


def by_keys(world: World, params: DescribeResourceTagsByTagKeys, _: str) -> dict[str, Any]:
    _check_count("ResourceIds", params.resource_ids, 20)
    _check_count("TagKeys", params.tag_keys, 20)
    rows = []
    for address in _named(world, params):
        pairs = [each for each in _pairs(address) if each["TagKey"] in params.tag_keys]
        if pairs:
            rows.append({"ResourceId": address.id, "TagKeyValues": pairs})
    return _paged(params, rows, "Rows")


def by_ids(world: World, params: DescribeResourceTagsByResourceIds, _: str) -> dict[str, Any]:
    _check_count("ResourceIds", params.resource_ids, 50)
    tags = [
        {**pair, "ResourceId": address.id, "ServiceType": params.service_type}
        for address in _named(world, params)
        for pair in _pairs(address)
    ]
    return _paged(params, tags, "Tags")


def get(world: World, params: GetResources, _: str) -> dict[str, Any]:
    """The token is the last resource of the page before, so that rows that come or go shift nothing."""
    if params.resource_list:
        _check_count("ResourceList", params.resource_list, 10)
        ids = {region_and_id(each)[1] for each in params.resource_list}
        found = [address for address in _tagged(world, []) if address.id in ids]
        return {"PaginationToken": "", "ResourceTagMappingList": [_mapping(each) for each in found]}
    _check_filters(params.tag_filters or [])
    if not 1 <= params.max_results <= 200:
        raise Fault("InvalidParameter", f"The MaxResults is {params.max_results}; from 1 to 200.")
    found = [each for each in _tagged(world, params.tag_filters or []) if each.id > params.pagination_token]
    found.sort(key=lambda address: address.id)
    shown = found[: params.max_results]
    token = shown[-1].id if len(found) > len(shown) else ""
    return {"PaginationToken": token, "ResourceTagMappingList": [_mapping(each) for each in shown]}


def _rows(world: World, filters: Sequence[TagFilter]) -> Iterator[dict[str, Any]]:
    services = ("vpc", "cvm") if world.knobs.duplicate_tag_rows else ("vpc",)
    for address in _tagged(world, filters):
        for service in services:
            yield {
                "ResourceRegion": address.region,
                "ServiceType": service,
                "ResourcePrefix": "eip",
                "ResourceId": address.id,
                "Tags": _pairs(address),
            }


def _tagged(world: World, filters: Sequence[TagFilter]) -> Iterator[Address]:
    for address in world.book.all(as_of_tags(world)):
        if address.type != WAN_IP and address.tags and all(_has(address, each) for each in filters):
            yield address


def _has(address: Address, wanted: TagFilter) -> bool:
    value = address.tags.get(wanted.tag_key)
    return value is not None and (not wanted.tag_value or value in wanted.tag_value)


def _named(
    world: World, params: DescribeResourceTagsByTagKeys | DescribeResourceTagsByResourceIds
) -> list[Address]:
    """Addresses of these ids, in this region; other kinds of resources are not emulated."""
    if (params.service_type, params.resource_prefix) not in {("vpc", "eip"), ("cvm", "eip")}:
        return []
    tagged = {each.id: each for each in _tagged(world, []) if each.region == params.resource_region}
    return [tagged[each] for each in dict.fromkeys(params.resource_ids) if each in tagged]


def _pairs(address: Address) -> list[dict[str, str]]:
    return [{"TagKey": key, "TagValue": value, "Category": "Custom"} for key, value in address.tags.items()]


def _mapping(address: Address) -> dict[str, Any]:
    return {"Resource": name_of(address), "Tags": _pairs(address)}


def _paged(
    params: DescribeResourcesByTags | DescribeResourceTagsByTagKeys | DescribeResourceTagsByResourceIds,
    rows: Sequence[dict[str, Any]],
    name: str,
) -> dict[str, Any]:
    shown = aligned(rows, params.offset, params.limit, most=MOST)
    return {"TotalCount": len(rows), "Offset": params.offset, "Limit": params.limit, name: shown}


def _check_filters(filters: Sequence[TagFilter]) -> None:
    if not filters:
        raise Fault("InvalidParameterValue.TagFilters", "There are no TagFilters.")
    if len(filters) > GROUPS:
        raise Fault(
            "InvalidParameterValue.TagFiltersLengthExceeded", f"There are more than {GROUPS} filters."
        )
    for each in filters:
        if len(each.tag_value) > VALUES:
            raise Fault(
                "InvalidParameterValue.TagFilters", f"`{each.tag_key}` has more than {VALUES} values."
            )


def _check_count(name: str, items: Sequence[str], most: int) -> None:
    if not 1 <= len(items) <= most:
        raise Fault("InvalidParameter", f"There are {len(items)} {name}; there must be from 1 to {most}.")


ACTIONS = {
    "DescribeResourcesByTags": Action(DescribeResourcesByTags, by_tags, 100),
    "DescribeResourceTagsByTagKeys": Action(DescribeResourceTagsByTagKeys, by_keys, 20),
    "DescribeResourceTagsByResourceIds": Action(DescribeResourceTagsByResourceIds, by_ids, 100),
    "GetResources": Action(GetResources, get, 20),
}
