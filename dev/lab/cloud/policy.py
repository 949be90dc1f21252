"""The account's policy (CAM): denied actions, and actions denied on some resources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.request import Params
from dev.lab.cloud.world import World

ANY = "*"
"""In place of an action: all of them."""


def check_action(world: World, action: str) -> None:
    """Raises Fault for an action that is denied whatever it is for."""
    if action in world.knobs.denied:
        raise _denied(f"perform the operation `{action}`")


def check_resources(world: World, action: str, params: Params) -> None:
    """Raises Fault when one of the resources in *params* is out of reach; as the cloud does, for the whole call."""
    rules = world.knobs.denied_resources
    denied = {*rules.get(action, ()), *rules.get(ANY, ())}
    if not denied:
        return
    for name in _resources(world, msgspec.to_builtins(params)):
        if name in denied:
            raise _denied(f"perform the operation `{action}` on the resource `{name}`")


def _denied(what: str) -> Fault:
    return Fault(
        "AuthFailure.UnauthorizedOperation",
        f"You are not authorized to {what}; a policy must allow it.",
    )


def _resources(world: World, params: object) -> Iterator[str]:
    """Ids, values and ``key=value`` tags in *params*, and the tags of the addresses that it names."""
    if isinstance(params, str):
        yield params
        if address := world.history.get(params):
            yield from (f"{key}={value}" for key, value in address.tags.items())
    elif isinstance(params, list):
        for each in params:
            yield from _resources(world, each)
    elif isinstance(params, dict):
        yield from _tag(params)
        for value in params.values():
            yield from _resources(world, value)


def _tag(params: dict[str, Any]) -> Iterator[str]:
    for key, value in (("Key", "Value"), ("TagKey", "TagValue")):
        if key in params and value in params:
            yield f"{params[key]}={params[value]}"
