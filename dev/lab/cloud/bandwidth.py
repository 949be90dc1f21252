"""ModifyAddressesBandwidth: one width for several addresses, bound or not."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dev.lab.cloud.action import Action
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.idle import idle, refused, started
from dev.lab.cloud.orders import check_bandwidth
from dev.lab.cloud.request import Params
from dev.lab.cloud.world import World

SETTLED = {"UNBIND", "BIND", "BIND_ENI"}


class ModifyAddressesBandwidth(Params, frozen=True):
    """The times are documented as without effect."""

    address_ids: list[str]
    internet_max_bandwidth_out: int
    start_time: str | None = None
    end_time: str | None = None


def modify(world: World, params: ModifyAddressesBandwidth, region: str) -> dict[str, Any]:
    """One task for all; one address that cannot be changed fails the whole batch."""
    if not 1 <= len(params.address_ids) <= world.knobs.release_batch:
        raise Fault(
            "InvalidParameterValue.LimitExceeded",
            f"There are {len(params.address_ids)} AddressIds; there must be from 1 to {world.knobs.release_batch}.",
        )
    width = params.internet_max_bandwidth_out
    addresses = [idle(world, each, region) for each in params.address_ids]
    for address in addresses:
        if address.status not in SETTLED:
            raise refused("UnsupportedOperation.AddressStatusNotPermit", address, "be changed")
        check_bandwidth(width, address.type, address.charge_type)
    changed = [replace(each, bandwidth=width) for each in addresses]
    return started(world.begin("bandwidth", changed, world.knobs.bandwidth_seconds))


ACTIONS = {"ModifyAddressesBandwidth": Action(ModifyAddressesBandwidth, modify, 20)}
