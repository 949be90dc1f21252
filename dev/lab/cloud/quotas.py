"""Quotas of addresses by region: in total, and ordered per day."""

from __future__ import annotations

from typing import Any

from dev.lab.cloud.action import Action
from dev.lab.cloud.config import Knobs
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.request import Params
from dev.lab.cloud.signature import utc_date
from dev.lab.cloud.values import WAN_IP
from dev.lab.cloud.world import World


class DescribeAddressQuota(Params, frozen=True):
    pass


def spend(world: World, region: str, count: int) -> None:
    """Raises Fault when the region has no room for as many more."""
    day = (region, utc_date(world.clock()))
    if world.applied[day] + count > daily(world.knobs):
        raise Fault(
            "AddressQuotaLimitExceeded.DailyAllocate",
            f"{world.applied[day]} addresses were applied for today; the quota is {daily(world.knobs)}.",
        )
    used = total(world, region)
    if used + count > world.knobs.quota_total:
        raise Fault(
            "AddressQuotaLimitExceeded",
            f"There are {used} addresses in {region}; the quota is {world.knobs.quota_total}.",
        )
    world.applied[day] += count


def describe(world: World, _: DescribeAddressQuota, region: str) -> dict[str, Any]:
    today = world.applied[region, utc_date(world.clock())]
    rows = {
        "TOTAL_EIP_QUOTA": (total(world, region), world.knobs.quota_total),
        "DAILY_EIP_APPLY": (today, daily(world.knobs)),
        "DAILY_PUBLIC_IP_ASSIGN": (0, 10),
        "MONTHLY_RECOVER_QUOTA": (0, 3),
    }
    return {"QuotaSet": [_row(name, *numbers, region) for name, numbers in rows.items()]}


def total(world: World, region: str) -> int:
    return sum(each.region == region and each.type != WAN_IP for each in world.history.all())


def daily(knobs: Knobs) -> int:
    return 2 * knobs.quota_total if knobs.quota_daily is None else knobs.quota_daily


def _row(name: str, current: int, limit: int, region: str) -> dict[str, Any]:
    return {"QuotaId": name, "QuotaCurrent": current, "QuotaLimit": limit, "QuotaGroup": region}


ACTIONS = {"DescribeAddressQuota": Action(DescribeAddressQuota, describe, 10)}
