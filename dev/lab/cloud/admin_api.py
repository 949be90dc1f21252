"""The admin API: paths by which another process changes the knobs and reads the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dev.lab.cloud import sts
from dev.lab.cloud.config import turn
from dev.lab.cloud.emulator import Reply
from dev.lab.cloud.request import Request
from dev.lab.cloud.values import Instance, Target
from dev.lab.cloud.world import World
from dev.lab.errors import LabError

PREFIX = "/_emulator/"
ROLE = "/latest/meta-data/cam/security-credentials/"
"""Where the metadata service of an instance has its role's name, and below it the credentials."""


class Balancer(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    targets: list[Target]


def steer(world: World, request: Request) -> Reply | None:
    """None when the request is for the cloud, not for the emulator."""
    if request.path.startswith(ROLE):
        role = request.path.removeprefix(ROLE)
        return Reply(sts.of_role(world)) if role else Reply(b"emulated", content_type="text/plain")
    if not request.path.startswith(PREFIX):
        return None
    do = ROUTES.get((request.method, request.path.removeprefix(PREFIX)))
    if do is None:
        return _refused(404, f"there is no {request.method} {request.path}; there are {sorted(ROUTES)}")
    try:
        return Reply(msgspec.json.encode(do(world, request.body)))
    except (msgspec.DecodeError, LabError) as error:
        return _refused(400, str(error))
    except KeyError as error:
        return _refused(404, f"there is no {error}")


def _refused(status: int, message: str) -> Reply:
    return Reply(msgspec.json.encode({"error": message}), status)


def _knobs(world: World, _: bytes) -> object:
    return world.knobs


def _turn(world: World, body: bytes) -> object:
    with world.lock:
        turn(world.knobs, msgspec.json.decode(body, type=dict[str, Any]))
    return world.knobs


def _state(world: World, _: bytes) -> object:
    addresses = world.addresses
    with world.lock:
        return {
            "addresses": list(addresses.values()),
            "instances": list(world.instances.values()),
            "tags": [{"key": key, "value": value} for key, value in sorted(world.tags)],
            "load_balancers": {name: list(each.values()) for name, each in world.load_balancers.items()},
            "running": world.tasks.running,
            "calls": world.count(),
        }


def _add_instance(world: World, body: bytes) -> object:
    wanted = msgspec.json.decode(body, type=Instance)
    return world.add_instance(wanted.id, wanted.state)


def _end_instance(world: World, body: bytes) -> object:
    world.end_instance(msgspec.json.decode(body, type=Instance).id)
    return {}


def _calls(world: World, _: bytes) -> object:
    return world.calls


def _add_address(world: World, body: bytes) -> object:
    return world.add_address(**msgspec.json.decode(body, type=dict[str, Any]))


def _put_load_balancer(world: World, body: bytes) -> object:
    wanted = msgspec.json.decode(body, type=Balancer)
    world.put_load_balancer(wanted.id, wanted.targets)
    return wanted


ROUTES: dict[tuple[str, str], Callable[[World, bytes], object]] = {
    ("GET", "knobs"): _knobs,
    ("PATCH", "knobs"): _turn,
    ("GET", "state"): _state,
    ("GET", "calls"): _calls,
    ("POST", "instances"): _add_instance,
    ("DELETE", "instances"): _end_instance,
    ("POST", "addresses"): _add_address,
    ("POST", "load-balancers"): _put_load_balancer,
}
