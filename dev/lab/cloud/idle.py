"""Check an address before a task starts: its id, that no other task runs on it, and its status."""

from __future__ import annotations

import re
from typing import Any

from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.values import WAN_IP, Address, Task
from dev.lab.cloud.world import World

ADDRESS_ID = re.compile(r"(eip|wanip)-[0-9a-z]{8}")


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
