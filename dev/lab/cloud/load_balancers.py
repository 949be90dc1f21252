"""DescribeTargets, DescribeTargetHealth and BatchModifyTargetWeight of the CLB API; weights change by tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from dev.lab.cloud.action import Action
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.request import Params
from dev.lab.cloud.values import Target
from dev.lab.cloud.world import World

RULES, TARGETS_OF_RULE, TARGETS, HEAVIEST = 100, 50, 500, 100


class DescribeTargets(Params, frozen=True):
    load_balancer_id: str


class DescribeTargetHealth(Params, frozen=True):
    load_balancer_ids: list[str]


class WeightTarget(Params, frozen=True):
    port: int
    weight: int | None = None
    instance_id: str | None = None
    eni_ip: str | None = None
    type: str | None = None


class WeightRule(Params, frozen=True):
    listener_id: str
    targets: list[WeightTarget]
    location_id: str | None = None
    weight: int | None = None


class BatchModifyTargetWeight(Params, frozen=True):
    load_balancer_id: str
    modify_list: list[WeightRule]


def describe(world: World, params: DescribeTargets, region: str) -> dict[str, Any]:
    rows = _targets(world, params.load_balancer_id)
    return {"Listeners": [_listener(name, targets) for name, targets in _grouped(rows, "listener")]}


def _listener(name: str, targets: list[Target]) -> dict[str, Any]:
    own = [_row(each) for each in targets if not each.location]
    rules = [
        {"LocationId": location, "Domain": "*", "Url": "/", "Targets": [_row(each) for each in found]}
        for location, found in _grouped([each for each in targets if each.location], "location")
    ]
    return {**_named(name, targets), "Port": 80, "Targets": own or None, "Rules": rules or None}


def _named(name: str, targets: list[Target]) -> dict[str, Any]:
    """By the protocol, one knows its layer."""
    return {"ListenerId": name, "Protocol": "HTTP" if any(each.location for each in targets) else "TCP"}


def _row(target: Target) -> dict[str, Any]:
    cvm = "cvm" if target.location else "CVM"  # the documents spell it in both ways
    return {
        "Type": cvm if target.instance else "ENI",
        "InstanceId": target.instance,
        "Port": target.port,
        "Weight": target.weight,
        "PrivateIpAddresses": [target.address] if target.address else None,
        "PublicIpAddresses": None,
    }


def health(world: World, params: DescribeTargetHealth, region: str) -> dict[str, Any]:
    found = [
        {
            "LoadBalancerId": each,
            "Listeners": [
                _named(name, targets) | {"Rules": [_health(*rule) for rule in _grouped(targets, "location")]}
                for name, targets in _grouped(_targets(world, each), "listener")
            ],
        }
        for each in params.load_balancer_ids
    ]
    return {"LoadBalancers": found}


def _health(location: str, targets: list[Target]) -> dict[str, Any]:
    rows = [
        {
            "IP": each.address,
            "Port": each.port,
            "TargetId": each.instance,
            "HealthStatus": each.healthy,
            "HealthStatusDetail": "Alive" if each.healthy else "Dead",
        }
        for each in targets
    ]
    # Of layer 4, too, it has an id, which appears nowhere else.
    return {"LocationId": location or f"loc-of-{targets[0].listener}", "Targets": rows}


def modify(world: World, params: BatchModifyTargetWeight, region: str) -> dict[str, Any]:
    """Refuse the whole batch, or begin a task for all of it."""
    _check_size(params)
    name, known = params.load_balancer_id, {}
    for each in _targets(world, name):
        known[each.listener, each.location, each.instance or each.address, each.port] = each
    changed = [_weighed(rule, target, known) for rule in params.modify_list for target in rule.targets]
    if any(each.name == name for each in world.weighings):
        raise Fault("FailedOperation.ResourceInOperating", f"Another operation is running on `{name}`.")
    world.weigh(name, changed)
    return {}


def _check_size(params: BatchModifyTargetWeight) -> None:
    counts = [len(each.targets) for each in params.modify_list]
    if len(counts) > RULES or max(counts, default=0) > TARGETS_OF_RULE or sum(counts) > TARGETS:
        raise Fault(
            "InvalidParameterValue.Length",
            f"The list is too long: {len(counts)} rules, {sum(counts)} targets.",
        )


def _weighed(
    rule: WeightRule, wanted: WeightTarget, known: dict[tuple[str, str, str, int], Target]
) -> Target:
    name = wanted.instance_id or wanted.eni_ip or ""
    found = known.get((rule.listener_id, rule.location_id or "", name, wanted.port))
    weight = rule.weight if wanted.weight is None else wanted.weight
    if found is None:
        raise Fault(
            "InvalidParameter", f"`{name}` with port {wanted.port} is not bound to {rule.listener_id}."
        )
    if weight is None or not 0 <= weight <= HEAVIEST:
        raise Fault(
            "InvalidParameterValue.Range", f"The weight is {weight}; it must be from 0 to {HEAVIEST}."
        )
    return replace(found, weight=weight)


def _targets(world: World, load_balancer: str) -> list[Target]:
    found = world.load_balancers.get(load_balancer)
    if found is None:
        raise Fault("InvalidParameter.LBIdNotFound", f"There is no load balancer `{load_balancer}`.")
    return sorted(found.values(), key=lambda each: (each.listener, each.location, each.key))


def _grouped(targets: Iterable[Target], field: str) -> Iterator[tuple[str, list[Target]]]:
    for name, found in groupby(targets, key=lambda each: str(getattr(each, field))):
        yield name, list(found)


ACTIONS = {
    "DescribeTargets": Action(DescribeTargets, describe, 20),
    "DescribeTargetHealth": Action(DescribeTargetHealth, health, 20),
    "BatchModifyTargetWeight": Action(BatchModifyTargetWeight, modify, 20),
}
