"""The page of anycast IPs: what the command lists."""

from __future__ import annotations

from cli.anycast_ip.addresses import Addresses, addresses_of
from cli.inventory import Inventory
from dashboard.pages import Permissions


def read(inventory: Inventory, _: Permissions) -> Addresses:
    return addresses_of(inventory)
