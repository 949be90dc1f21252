"""AllocateAddresses, ReleaseAddresses and ModifyAddressesBandwidth: tasks that start only from some states."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from msgspec.structs import replace

from dev.lab.cloud.action import Action
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.orders import AllocateAddresses, check_bandwidth, check_order
from dev.lab.cloud.quotas import spend
from dev.lab.cloud.request import Params
from dev.lab.cloud.values import WAN_IP, Address, Answered, Task
from dev.lab.cloud.world import World

ADDRESS_ID = re.compile(r"(eip|wanip)-[0-9a-z]{8}")
LONGEST_TOKEN = 64
BATCH = 100
SETTLED = {"UNBIND", "BIND", "BIND_ENI"}


class ReleaseAddresses(Params, frozen=True):
    address_ids: list[str]


class ModifyAddressesBandwidth(Params, frozen=True):
    address_ids: list[str]
    internet_max_bandwidth_out: int


def allocate(world: World, params: AllocateAddresses, region: str) -> Mapping[str, Any]:
    """The first answer again for a ClientToken that was answered before."""
    token = params.client_token
    if token is None:
        return _allocate(world, params, region)
    if not token.isascii() or len(token) > LONGEST_TOKEN:
        raise Fault(
            "InvalidParameterValue.Malformed",
            f"The ClientToken `{token}` must be ASCII and not longer than {LONGEST_TOKEN} characters.",
        )
    now, before = world.clock(), world.answered.get((region, token))
    if before and before.at >= now - world.knobs.client_token_seconds:
        _check_replayed(world, token, params, before)
        return before.response
    response = _allocate(world, params, region)
    world.answered[region, token] = Answered(params, response, now)
    return response


def _check_replayed(world: World, token: str, params: AllocateAddresses, before: Answered) -> None:
    if before.params != params:
        raise Fault(
            "UnsupportedOperation.IdempotentParameterMismatch",
            f"The ClientToken `{token}` was used with other parameters.",
        )
    task = world.tasks.get(int(before.response["TaskId"]))
    if world.knobs.token_busy_while_creating and task and task.result == "RUNNING":
        raise Fault(
            "UnsupportedOperation.IdempotentProcessing", "The earlier request is still being carried out."
        )


def _allocate(world: World, params: AllocateAddresses, region: str) -> Mapping[str, Any]:
    check_order(world, params, region)
    spend(world, region, params.address_count)
    addresses = [_new(world, params, region) for _ in range(params.address_count)]
    task = world.begin("allocate", addresses, world.knobs.allocate_seconds)
    return {"AddressSet": task.addresses, "TaskId": str(task.id)}


def _new(world: World, params: AllocateAddresses, region: str) -> Address:
    return Address(
        id=world.new_id("eip"),
        ip=world.new_ip(),
        region=region,
        created=world.clock(),
        type=params.address_type,
        name=params.address_name,
        tags={tag.key: tag.value for tag in params.tags},
        bandwidth=params.internet_max_bandwidth_out or 1,
        charge_type=params.internet_charge_type or "TRAFFIC_POSTPAID_BY_HOUR",
        bandwidth_package=params.bandwidth_package_id or "",
    )


def release(world: World, params: ReleaseAddresses, region: str) -> dict[str, Any]:
    """One task for all; one address that cannot be released fails the whole batch."""
    addresses = _batch(world, params.address_ids, region)
    for address in addresses:
        if address.status != "UNBIND":
            raise refused("InvalidAddressState", address, "be released")
    return started(world.begin("release", addresses, world.knobs.release_seconds))


def modify(world: World, params: ModifyAddressesBandwidth, region: str) -> dict[str, Any]:
    """One width for several addresses, bound or not; one that cannot be changed fails the whole batch."""
    width, addresses = params.internet_max_bandwidth_out, _batch(world, params.address_ids, region)
    for address in addresses:
        if address.status not in SETTLED:
            raise refused("UnsupportedOperation.AddressStatusNotPermit", address, "be changed")
        check_bandwidth(width, address.type, address.charge_type)
    changed = [replace(each, bandwidth=width) for each in addresses]
    return started(world.begin("bandwidth", changed, world.knobs.bandwidth_seconds))


def _batch(world: World, ids: Collection[str], region: str) -> list[Address]:
    if not 1 <= len(ids) <= BATCH:
        raise Fault(
            "InvalidParameterValue.LimitExceeded",
            f"There are {len(ids)} AddressIds; there must be from 1 to {BATCH}.",
        )
    return [idle(world, each, region) for each in ids]


def check_id(address_id: str) -> None:
    if not ADDRESS_ID.fullmatch(address_id):
        raise Fault(
            "InvalidParameterValue.AddressIdMalformed",
            f"`{address_id}` is no address id; it must look like eip-11112222.",
        )


def idle(world: World, address_id: str, region: str) -> Address:
    """The address; raises Fault when it does not exist, or a task is running on it."""
    check_id(address_id)
    address = world.history.get(address_id)
    if address is None or address.region != region or address.type == WAN_IP:
        raise Fault("InvalidAddressId.NotFound", f"There is no address {address_id} in {region}.")
    if world.tasks.running_on(address_id):
        raise Fault("OperationDenied.MutexTaskRunning", f"Another task is at work on {address_id}.")
    return address


def refused(code: str, address: Address, what: str) -> Fault:
    return Fault(code, f"The address {address.id} is {address.status}; it cannot {what} now.")


def started(task: Task) -> dict[str, Any]:
    """As the API answers: the number as a string."""
    return {"TaskId": str(task.id)}


ACTIONS = {
    "AllocateAddresses": Action(AllocateAddresses, allocate, 10),
    "ReleaseAddresses": Action(ReleaseAddresses, release, 10),
    "ModifyAddressesBandwidth": Action(ModifyAddressesBandwidth, modify, 20),
}
