"""DescribeInstances of the CVM API, by ids."""

from __future__ import annotations

import re
from typing import Any

from dev.lab.cloud.action import Action
from dev.lab.cloud.describe import page
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.request import Params
from dev.lab.cloud.world import World

IDS = 100
ID = re.compile(r"ins-[0-9a-z]+")


class DescribeInstances(Params, frozen=True):
    instance_ids: list[str]
    offset: int = 0
    limit: int = 20


def describe(world: World, params: DescribeInstances, region: str) -> dict[str, Any]:
    if len(params.instance_ids) > IDS:
        raise Fault("InvalidParameterValue.LimitExceeded", f"There are more than {IDS} InstanceIds.")
    for each in params.instance_ids:
        if not ID.fullmatch(each):
            raise Fault("InvalidInstanceId.Malformed", f"`{each}` is no instance id, like ins-11112222.")
    rows = list(filter(None, map(world.instance, dict.fromkeys(params.instance_ids))))
    on_page = page(rows, params.offset, params.limit, code="InvalidParameterValueLimit")
    found = [{"InstanceId": each.id, "InstanceState": each.state} for each in on_page]
    return {"TotalCount": len(rows), "InstanceSet": found}


ACTIONS = {"DescribeInstances": Action(DescribeInstances, describe, 40)}
