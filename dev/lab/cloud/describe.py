"""DescribeAddresses: current rows by id, rows of a lagging index by filters, 20 on a page by default."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from msgspec.structs import replace

from dev.lab.cloud.action import Action
from dev.lab.cloud.addresses import check_id
from dev.lab.cloud.config import Knobs
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.request import Filter, Params
from dev.lab.cloud.values import HOLDING, WAN_IP, Address
from dev.lab.cloud.world import World

FILTERS, VALUES, LONGEST_PAGE = 10, 100, 100
"""At most in a request, in a filter, and on a page."""
Row = TypeVar("Row")
FIELDS: dict[str, Callable[[Address], str]] = {
    "address-name": lambda address: address.name,
    "instance-id": lambda address: address.instance_id,
    "address-type": lambda address: address.type,
}
"""By what addresses are found here; there are more filters."""
ELASTIC = Filter(
    name="address-type", values=["EIP", "AnycastEIP", "HighQualityEIP", "AntiDDoSEIP", "ResidentialEIP"]
)
"""What is found when no type is named: all but the ordinary addresses of instances."""


class DescribeAddresses(Params, frozen=True):
    address_ids: list[str] | None = None
    filters: list[Filter] = []
    offset: int = 0
    limit: int = 20


@dataclass(frozen=True)
class Wanted:
    """A filter, and the time up to which its index has come."""

    name: str
    values: frozenset[str]
    as_of: float


def describe(world: World, params: DescribeAddresses, region: str) -> dict[str, Any]:
    _check(params)
    rows = [address for address in _found(world, params) if address.region == region]
    rows.sort(key=lambda address: (address.created, address.id))
    rows_shown = page(rows, params.offset, params.limit, code="InvalidParameterValue.Range")
    return {
        "TotalCount": len(rows),
        "AddressSet": [row(shown(world.knobs, address)) for address in rows_shown],
    }


def _check(params: DescribeAddresses) -> None:
    if len(params.filters) > FILTERS:
        raise Fault(
            "LimitExceeded.NumberOfFilters", f"There are {len(params.filters)} Filters; at most {FILTERS}."
        )
    for address_id in params.address_ids or ():
        check_id(address_id)
    for each in params.filters:
        if each.name not in FIELDS and not each.name.startswith("tag:"):
            raise Fault("InvalidParameter.FilterInvalidKey", f"There is no filter `{each.name}`.")
        if not 1 <= len(each.values) <= VALUES:
            raise Fault(
                "InvalidParameterValue.LimitExceeded",
                f"The filter {each.name} has {len(each.values)} Values; there must be from 1 to {VALUES}.",
            )


def _found(world: World, params: DescribeAddresses) -> Iterator[Address]:
    ids = set(params.address_ids or ())
    keys = [key for key in world.history.names() if not ids or key in ids]
    if ids and not params.filters:
        yield from (address for address in map(world.history.get, keys) if address and address.type != WAN_IP)
        return
    asked = list(params.filters)
    if all(each.name != "address-type" for each in asked):
        asked.append(ELASTIC)
    wanted = [_wanted(world, each) for each in asked]
    shown_as_of = _as_of(world) if world.knobs.stale_rows else math.inf
    for key in keys:
        row = world.history.get(key, shown_as_of)
        if row and all(_finds(world, each, key) for each in wanted):
            yield row


def _wanted(world: World, asked: Filter) -> Wanted:
    of_tags = asked.name.startswith("tag:")
    # Of names, only the first value counts.
    values = asked.values[:1] if asked.name == "address-name" else asked.values
    return Wanted(asked.name, frozenset(values), as_of_tags(world) if of_tags else _as_of(world))


def _finds(world: World, wanted: Wanted, key: str) -> bool:
    address = world.history.get(key, wanted.as_of)
    if address is None:
        return False
    return not wanted.values.isdisjoint(_keys(shown(world.knobs, address), wanted.name))


def _keys(address: Address, name: str) -> set[str]:
    """By what this filter finds the address."""
    if name.startswith("tag:"):
        return {value for key, value in address.tags.items() if key == name.removeprefix("tag:")}
    return {FIELDS[name](address)}


def _as_of(world: World) -> float:
    return world.clock() - world.knobs.filter_lag_seconds


def as_of_tags(world: World) -> float:
    """The time up to which the index of tags has come."""
    return world.clock() - world.knobs.tag_lag_seconds


def shown(knobs: Knobs, address: Address) -> Address:
    """Without the instance, where the cloud does not show it in this state."""
    if address.status == "BINDING":
        visible = knobs.instance_shown_while_binding
    else:
        visible = address.status in HOLDING or knobs.instance_shown_after_unbinding
    return address if visible else replace(address, instance_id="", network_interface_id="")


def row(address: Address) -> dict[str, Any]:
    """As the API spells it; of more fields, nothing is read."""
    return {
        "AddressId": address.id,
        "AddressName": address.name,
        "AddressStatus": address.status,
        "AddressIp": address.ip,
        "InstanceId": address.instance_id or None,
        "CreatedTime": datetime.fromtimestamp(address.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "NetworkInterfaceId": address.network_interface_id or None,
        "IsArrears": address.arrears,
        "IsBlocked": address.blocked,
        "AddressType": address.type,
        "Bandwidth": address.bandwidth,
        "InternetChargeType": address.charge_type,
        "TagSet": [{"Key": key, "Value": value} for key, value in address.tags.items()],
        "BandwidthPackageId": address.bandwidth_package or None,
    }


def page(rows: Sequence[Row], offset: int, limit: int, *, code: str) -> Sequence[Row]:
    """Raises Fault with *code* when there is no such page."""
    if not 1 <= limit <= LONGEST_PAGE:
        raise Fault(code, f"The Limit is {limit}; it must be from 1 to {LONGEST_PAGE}.")
    if offset < 0:
        raise Fault(code, f"The Offset is {offset}; it must not be negative.")
    return rows[offset : offset + limit]


ACTIONS = {"DescribeAddresses": Action(DescribeAddresses, describe, 20)}
