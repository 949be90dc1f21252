"""What calls ask for, as the cloud spells it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cloud.types import Order, Tag

Params = dict[str, object]


def filters(wanted: Mapping[str, Sequence[str]]) -> list[Params]:
    return [{"Name": name, "Values": list(values)} for name, values in wanted.items()]


def tags(pairs: Collection[Tag]) -> dict[Tag, Params]:
    return {(key, value): {"TagKey": key, "TagValue": value} for key, value in pairs}


def allocation(order: Order) -> Params:
    params: Params = {
        "AddressCount": 1,
        "AddressType": order.type,
        "AddressName": order.name,
        "ClientToken": order.token,
        "AnycastZone": order.zone,
        "InternetServiceProvider": order.provider,
        "InternetChargeType": order.charge_type,
        "InternetMaxBandwidthOut": order.bandwidth,
        "BandwidthPackageId": order.bandwidth_package,
        # Sorted, because a token counts for one and the same order only.
        "Tags": [{"Key": key, "Value": value} for key, value in sorted(order.tags.items())] or None,
    }
    return {name: value for name, value in params.items() if value is not None}
