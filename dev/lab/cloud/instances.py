"""DescribeInstances of the CVM API."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from dev.lab.cloud.action import Action
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.paging import page
from dev.lab.cloud.request import Filter, Params
from dev.lab.cloud.values import BOUND, Instance
from dev.lab.cloud.world import World

IDS, FILTERS, VALUES = 100, 10, 5
ID = re.compile(r"ins-[0-9a-z]+")

FIELDS: dict[str, Callable[[Instance], str | None]] = {
    "instance-id": lambda instance: instance.id,
    "instance-name": lambda instance: instance.name,
    "instance-state": lambda instance: instance.state,
    "private-ip-address": lambda instance: instance.private_ip,
    "public-ip-address": lambda instance: instance.public_ip,
    "vpc-id": lambda instance: instance.vpc_id,
    "zone": lambda instance: instance.zone,
}


class DescribeInstances(Params, frozen=True):
    instance_ids: list[str] | None = None
    filters: list[Filter] | None = None
    offset: int = 0
    limit: int = 20


def describe(world: World, params: DescribeInstances, region: str) -> dict[str, Any]:
    _check(params)
    rows = [each for each in _found(world, params) if each.region in ("", region)]
    on_page = page(rows, params.offset, params.limit, code="InvalidParameterValueLimit")
    public = {address.instance_id: address.ip for address in world.history.all() if address.status in BOUND}
    return {
        "TotalCount": len(rows),
        "InstanceSet": [row(each, public.get(each.id), region) for each in on_page],
    }


def _check(params: DescribeInstances) -> None:
    if params.instance_ids and params.filters:
        raise Fault("InvalidParameterConflict", "Give `InstanceIds` or `Filters`, not both.")
    if len(params.instance_ids or ()) > IDS:
        raise Fault("InvalidParameterValue.LimitExceeded", f"There are more than {IDS} InstanceIds.")
    for each in params.instance_ids or ():
        if not ID.fullmatch(each):
            raise Fault("InvalidInstanceId.Malformed", f"`{each}` is no instance id, like ins-11112222.")
    if len(params.filters or ()) > FILTERS:
        raise Fault("InvalidFilterValue.LimitExceeded", f"There are more than {FILTERS} Filters.")
    for wanted in params.filters or ():
        if wanted.name not in FIELDS:
            raise Fault("InvalidFilter", f"There is no filter `{wanted.name}`; there are {sorted(FIELDS)}.")
        if not 1 <= len(wanted.values) <= VALUES:
            raise Fault(
                "InvalidFilterValue.LimitExceeded",
                f"The filter {wanted.name} has {len(wanted.values)} Values; from 1 to {VALUES}.",
            )


def _found(world: World, params: DescribeInstances) -> Iterator[Instance]:
    if params.instance_ids:
        found = list(filter(None, map(world.instance, dict.fromkeys(params.instance_ids))))
        if world.knobs.missing_instance_is_error and len(found) < len(set(params.instance_ids)):
            raise Fault("InvalidInstanceId.NotFound", "One of the InstanceIds is not there.")
        yield from found
        return
    for instance in world.fleet.values():
        if all(FIELDS[each.name](instance) in each.values for each in params.filters or ()):
            yield instance


def row(instance: Instance, public_ip: str | None, region: str) -> dict[str, Any]:
    return {
        "InstanceId": instance.id,
        "InstanceName": instance.name,
        "InstanceState": instance.state,
        "Placement": {"Zone": instance.zone or f"{region}-1"},
        "PrivateIpAddresses": [instance.private_ip] if instance.private_ip else [],
        "PublicIpAddresses": [public_ip] if public_ip else None,
        "RestrictState": "NORMAL",
        "StopChargingMode": _charging(instance),
        "VirtualPrivateCloud": {"VpcId": instance.vpc_id},
    }


def _charging(instance: Instance) -> str:
    if instance.state != "STOPPED":
        return "NOT_APPLICABLE"
    return "STOP_CHARGING" if instance.stop_charging else "KEEP_CHARGING"


ACTIONS = {"DescribeInstances": Action(DescribeInstances, describe, 40)}
