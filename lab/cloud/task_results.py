"""DescribeTaskResult: how a task stands; it says no more than that."""

from __future__ import annotations

from typing import Any

from lab.cloud.action import Action
from lab.cloud.envelope import Fault
from lab.cloud.request import Params
from lab.cloud.world import World


class DescribeTaskResult(Params, frozen=True):
    task_id: int | str | None = None
    deal_name: str | None = None


def describe(world: World, params: DescribeTaskResult, _: str) -> dict[str, Any]:
    number = _number(world, params)
    task = world.tasks.get(number)
    if task is None:
        raise Fault("InvalidParameterValue", f"There is no task {number}.")
    return {"TaskId": task.id, "Result": task.result}


def _number(world: World, params: DescribeTaskResult) -> int:
    """It is an integer here, though the other actions answer strings."""
    number = params.task_id
    if number is None:
        raise Fault("MissingParameter", "The request is missing a required parameter `TaskId`.")
    if isinstance(number, int):
        return number
    if not world.knobs.task_id_may_be_string or not number.isdecimal():
        raise Fault("InvalidParameter", f"The TaskId is the string `{number}`; it must be an integer.")
    return int(number)


ACTIONS = {"DescribeTaskResult": Action(DescribeTaskResult, describe, 20)}
