"""Validate orders of addresses: types, charges, bandwidths, regions and tags."""

from __future__ import annotations

from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.request import Params
from dev.lab.cloud.world import World

TYPES = {"EIP", "AnycastEIP", "HighQualityEIP", "AntiDDoSEIP", "ResidentialEIP"}
ZONES = {None, "ANYCAST_ZONE_OVERSEAS", "ANYCAST_ZONE_GLOBAL"}
BANDWIDTHS = {"BANDWIDTH_PACKAGE": 2000, "BANDWIDTH_POSTPAID_BY_HOUR": 100, "TRAFFIC_POSTPAID_BY_HOUR": 100}
"""The widest in Mbps by charge type."""
WIDEST_ANYCAST = 2000
OVERSEAS = {
    "ap-hongkong",
    "ap-singapore",
    "ap-bangkok",
    "ap-jakarta",
    "ap-seoul",
    "ap-tokyo",
    "eu-frankfurt",
    "na-ashburn",
    "na-siliconvalley",
    "na-toronto",
    "sa-saopaulo",
}
HIGH_QUALITY = {"ap-hongkong", "ap-singapore"}


class Tag(Params, frozen=True):
    key: str
    value: str


class AllocateAddresses(Params, frozen=True):
    """Its parameters that are not here, of prepaid, dedicated and protected addresses, are not emulated."""

    address_count: int = 1
    internet_charge_type: str | None = None
    internet_max_bandwidth_out: int | None = None
    address_type: str = "EIP"
    anycast_zone: str | None = None
    tags: list[Tag] = []
    bandwidth_package_id: str | None = None
    address_name: str = ""
    client_token: str | None = None


def check_order(world: World, order: AllocateAddresses, region: str) -> None:
    if order.address_type not in TYPES:
        raise Fault("InvalidParameterValue", f"There is no AddressType `{order.address_type}`.")
    if order.anycast_zone not in ZONES:
        raise Fault("InvalidParameterValue", f"There is no AnycastZone `{order.anycast_zone}`.")
    if order.address_count < 1:
        raise Fault("InvalidParameterValue.Range", f"The AddressCount is {order.address_count}; at least 1.")
    _check_permitted(world, order, region)
    _check_charge(order)
    _check_tags(world, order)


def _check_permitted(world: World, order: AllocateAddresses, region: str) -> None:
    if order.address_type == "AnycastEIP" and not world.knobs.anycast_allowed:
        raise Fault("UnauthorizedOperation.AnycastEip", "The account is not allowed anycast addresses.")
    regions = {"AnycastEIP": OVERSEAS, "HighQualityEIP": HIGH_QUALITY}.get(order.address_type)
    if regions and region not in regions:
        raise Fault(
            "UnsupportedOperation.UnsupportedRegion", f"There is no {order.address_type} in {region}."
        )


def _check_charge(order: AllocateAddresses) -> None:
    charge, width = order.internet_charge_type, order.internet_max_bandwidth_out
    if charge and charge not in BANDWIDTHS:
        raise Fault(
            "UnsupportedOperation.OfflineChargeType",
            f"The InternetChargeType is `{charge}`; one of {sorted(BANDWIDTHS)}. Prepaid ones are not emulated.",
        )
    if width is not None:
        check_bandwidth(width, order.address_type, charge or "TRAFFIC_POSTPAID_BY_HOUR")


def check_bandwidth(width: int, address_type: str, charge_type: str) -> None:
    widest = WIDEST_ANYCAST if address_type == "AnycastEIP" else BANDWIDTHS[charge_type]
    if not 1 <= width <= widest:
        raise Fault(
            "InvalidParameterValue.BandwidthOutOfRange",
            f"The InternetMaxBandwidthOut is {width}; from 1 to {widest} Mbps for {charge_type}.",
        )


def _check_tags(world: World, order: AllocateAddresses) -> None:
    since = world.clock() - world.knobs.new_tag_seconds
    for tag in order.tags:
        made = world.made_tags.get((tag.key, tag.value))
        if made is None or made > since:
            raise Fault(
                "InvalidParameterValue.TagNotExisted", f"The tag `{tag.key}:{tag.value}` does not exist."
            )
