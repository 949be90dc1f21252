"""The terms of an address, which may differ by the labels of its node: how wide it is, and how it is paid."""

from __future__ import annotations

import msgspec

from cloud.types import Address
from kube.types import Node, complete
from settings import AnycastIPSettings
from settings.anycast_ip import AddressSettings


class Terms(msgspec.Struct, frozen=True):
    """*bandwidth* is in Mbps; 0 and "" leave it to the cloud."""

    bandwidth: int = 0
    charge_type: str = ""
    bandwidth_package: str = ""


complete(Terms)


def terms_of_all(settings: AnycastIPSettings) -> Terms:
    """Those of nodes that no entry of the settings selects."""
    return Terms(settings.bandwidth, settings.internet_charge_type, settings.bandwidth_package_id)


def terms_for(node: Node, settings: AnycastIPSettings) -> Terms | None:
    """Those of the first entry that selects *node*; None when none does."""
    selecting = (
        each for each in settings.addresses if each.node_selector.items() <= node.metadata.labels.items()
    )
    return next((_merged(each, settings) for each in selecting), None)


def _merged(entry: AddressSettings, settings: AnycastIPSettings) -> Terms:
    """A package belongs to a way to pay: with another way, that of all nodes is no default."""
    is_paid_alike = entry.internet_charge_type in ("", settings.internet_charge_type)
    package = settings.bandwidth_package_id if is_paid_alike else ""
    return Terms(
        entry.bandwidth or settings.bandwidth,
        entry.internet_charge_type or settings.internet_charge_type,
        entry.bandwidth_package_id or package,
    )


def terms_of(address: Address) -> Terms:
    return Terms(address.bandwidth, address.charge_type, address.bandwidth_package)


def is_paid_as(found: Terms, wanted: Terms) -> bool:
    """Whether an address with the terms *found* will do. The cloud changes how it is paid twice at most."""
    charge, package = wanted.charge_type, wanted.bandwidth_package
    return charge in ("", found.charge_type) and package in ("", found.bandwidth_package)


def wanted_bandwidth(node: Node, settings: AnycastIPSettings) -> int:
    """What the address of *node* should have, in Mbps; 0 when it stays as it was ordered."""
    if not settings.addresses:
        return 0
    return (terms_for(node, settings) or terms_of_all(settings)).bandwidth
