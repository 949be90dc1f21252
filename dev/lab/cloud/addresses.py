"""AllocateAddresses and ReleaseAddresses: tasks that start only from the states that allow them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dev.lab.cloud.action import Action
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.idle import idle, refused, started
from dev.lab.cloud.orders import AllocateAddresses, check_order, make_tags
from dev.lab.cloud.quotas import spend
from dev.lab.cloud.request import Params
from dev.lab.cloud.tokens import Answered
from dev.lab.cloud.tokens import check as check_token
from dev.lab.cloud.values import Address
from dev.lab.cloud.world import World


class ReleaseAddresses(Params, frozen=True):
    address_ids: list[str]


def allocate(world: World, params: AllocateAddresses, region: str) -> Mapping[str, Any]:
    token = params.client_token
    if token is None:
        return _allocate(world, params, region)
    check_token(token)
    now = world.clock()
    if replayed := world.replays.find(region, token, params, now - world.knobs.client_token_seconds):
        _check_done(world, replayed)
        return replayed
    response = _allocate(world, params, region)
    world.replays.keep(region, token, Answered(params, response, now))
    return response


def _check_done(world: World, replayed: Mapping[str, Any]) -> None:
    task = world.tasks.get(int(replayed["TaskId"]))
    if world.knobs.token_busy_while_creating and task and task.result == "RUNNING":
        raise Fault(
            "UnsupportedOperation.IdempotentProcessing", "The earlier request is still being carried out."
        )


def _allocate(world: World, params: AllocateAddresses, region: str) -> Mapping[str, Any]:
    check_order(world, params, region)
    spend(world, region, params.address_type, params.address_count)
    make_tags(world, params)
    addresses = [_new(world, params, region) for _ in range(params.address_count)]
    task = world.begin("allocate", addresses, world.knobs.allocate_seconds)
    return {"AddressSet": task.addresses, "TaskId": str(task.id)}


def _new(world: World, params: AllocateAddresses, region: str) -> Address:
    return Address(
        id=world.names.new_id("eip"),
        ip=world.names.new_ip(),
        region=region,
        created=world.clock(),
        type=params.address_type,
        name=params.address_name,
        tags={tag.key: tag.value for tag in params.tags},
        bandwidth=params.internet_max_bandwidth_out or 1,
        charge_type=params.internet_charge_type or "TRAFFIC_POSTPAID_BY_HOUR",
        isp=params.internet_service_provider,
        zone=params.anycast_zone or "",
        egress=params.egress or "",
        bandwidth_package=params.bandwidth_package_id or "",
    )


def release(world: World, params: ReleaseAddresses, region: str) -> dict[str, Any]:
    """One task for all; one address that cannot be released fails the whole batch."""
    _check_batch(world, params.address_ids)
    addresses = [idle(world, each, region) for each in params.address_ids]
    for address in addresses:
        if address.status != "UNBIND":
            raise refused("InvalidAddressState", address, "be released")
    return started(world.begin("release", addresses, world.knobs.release_seconds))


def _check_batch(world: World, ids: Iterable[str]) -> None:
    count = len(list(ids))
    if not 1 <= count <= world.knobs.release_batch:
        raise Fault(
            "InvalidParameterValue.LimitExceeded",
            f"There are {count} AddressIds; there must be from 1 to {world.knobs.release_batch}.",
        )


ACTIONS = {
    "AllocateAddresses": Action(AllocateAddresses, allocate, 10),
    "ReleaseAddresses": Action(ReleaseAddresses, release, 10),
}
